// State timeline, heatmap and bar chart, which @grafana/ui does not contain. They show the data, not Grafana's drawing.
import { DataFrame, FieldType, formattedValueToString, getFieldDisplayName, GrafanaTheme2 } from '@grafana/data';
import { UPlotChart, UPlotConfigBuilder } from '@grafana/ui';

type Row = { name: string; times: number[]; values: number[]; color: (value: number) => string };

function rowsOf(frames: DataFrame[], theme: GrafanaTheme2): Row[] {
  return frames.map((frame) => {
    const field = frame.fields.find((one) => one.type === FieldType.number)!;
    return {
      name: getFieldDisplayName(field, frame, frames), times: frame.fields[0].values, values: field.values,
      color: (value: number) => theme.visualization.getColorByName(field.display!(value).color ?? 'green'),
    };
  });
}

// buckets of a classic histogram are cumulative: subtract the bucket below
function buckets(rows: Row[]): Row[] {
  const bound = (row: Row) => parseFloat(row.name.replace('+Inf', 'Infinity'));
  const sorted = [...rows].sort((a, b) => bound(a) - bound(b));
  const own = sorted.map((row, i) => ({ ...row, values: row.values.map((v, j) => v - (i ? sorted[i - 1].values[j] ?? 0 : 0)) }));
  const most = Math.max(...own.flatMap((row) => row.values));
  const color = (value: number) => `rgba(255,${140 - (100 * value) / most},20,${0.15 + 0.85 * Math.sqrt(value / most)})`;
  return own.map((row) => ({ ...row, color, values: row.values.map((value) => (value > 0 ? value : NaN)) }));
}

export function Cells({ panel, frames, width, height, theme, from, to, step }: any) {
  const rows = panel.type === 'heatmap' ? buckets(rowsOf(frames, theme)) : rowsOf(frames, theme).reverse();
  const builder = new UPlotConfigBuilder('utc');
  builder.addScale({ scaleKey: 'x', isTime: true, orientation: 0, direction: 1, range: () => [from, to] } as any);
  builder.addScale({ scaleKey: 'y', orientation: 1, direction: 1, range: () => [0, rows.length] } as any);
  builder.addAxis({ scaleKey: 'x', isTime: true, placement: 'bottom', theme, timeZone: 'utc' } as any);
  builder.addAxis({
    scaleKey: 'y', placement: 'left', theme, splits: rows.map((_, i) => i + 0.5), size: panel.type === 'heatmap' ? 50 : 170,
    formatValue: (value: number) => rows[Math.floor(value)]?.name ?? '',
  } as any);
  builder.addSeries({ scaleKey: 'y', theme, pathBuilder: () => null, show: true } as any);
  builder.addHook('draw', (plot: any) => {
    plot.ctx.save();
    rows.forEach((row, i) => row.times.forEach((time, j) => {
      if (Number.isNaN(row.values[j])) return;
      const left = plot.valToPos(time, 'x', true);
      const right = plot.valToPos(time + step * 1000, 'x', true);
      const top = plot.valToPos(i + 0.95, 'y', true);
      plot.ctx.fillStyle = row.color(row.values[j]);
      plot.ctx.fillRect(left, top, Math.ceil(right - left), plot.valToPos(i + 0.05, 'y', true) - top);
    }));
    plot.ctx.restore();
  });
  const times = rows[0]?.times ?? [];
  return <UPlotChart config={builder} data={[times, times.map(() => 0)] as any} width={width} height={height} />;
}

// one horizontal bar per row of the frame, its number fields stacked
export function Bars({ panel, frame, width, height, theme }: any) {
  const x = frame.fields.find((field: any) => field.type === FieldType.string);
  const parts = frame.fields.filter((field: any) => field.type === FieldType.number);
  const color = (i: number) => theme.visualization.getColorByName(parts[i].config.color?.fixedColor ?? theme.visualization.palette[i]);
  const sum = (row: number) => parts.reduce((total: number, part: any) => total + (part.values[row] || 0), 0);
  const full = panel.options?.stacking === 'percent' ? undefined : Math.max(...x.values.map((_: string, row: number) => sum(row)), 1e-9);
  const barHeight = Math.max(6, (height - 44) / x.values.length - 4); // as in Grafana, bars fill the panel
  return (
    <div style={{ width, height, fontSize: 12, overflow: 'hidden' }}>
      {x.values.map((name: string, row: number) => (
        <div key={row} style={{ display: 'flex', height: barHeight, marginBottom: 4, lineHeight: `${barHeight}px` }}>
          <span style={{ width: 190, overflow: 'hidden', whiteSpace: 'nowrap' }}>{name}</span>
          {parts.map((part: any, i: number) => (
            <span key={i} style={{ background: color(i), width: ((width - 200) * (part.values[row] || 0)) / (full ?? sum(row)) }} />
          ))}
        </div>
      ))}
      <div style={{ display: 'flex', justifyContent: 'space-between', marginLeft: 190, opacity: 0.6 }}>
        <span>0</span><span>{full === undefined ? '100%' : formattedValueToString(parts[0].display(full))}</span>
      </div>
      <div>{parts.map((part: any, i: number) => (
        <span key={i} style={{ marginRight: 14 }}><b style={{ color: color(i) }}>■</b> {getFieldDisplayName(part, frame)}</span>
      ))}</div>
    </div>
  );
}
