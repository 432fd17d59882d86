// A board as one static page, rendered with Grafana's components from the responses in data.js.
import { createTheme, dateTime, getFieldDisplayValues, ThemeContext, transformDataFrame } from '@grafana/data';
import { initPluginTranslations } from '@grafana/i18n';
import { BarGauge, BigValue, GlobalStyles, PanelChrome, PortalContainer, TimeSeries, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import React from 'react';
import { createRoot } from 'react-dom/client';
import { lastValueFrom } from 'rxjs';

import { Bars, Cells } from './drawn_here';
import { configured, framesOf } from './frames';

const { board, answers, values, from, to, step, width } = (window as any).__DATA__;
const theme = createTheme({ colors: { mode: 'dark' } });
const timeRange: any = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
const replaceVariables = (text: string) => text.replace(/\$\{?(\w+)\}?/g, (whole, name) => values[name] ?? whole);
const CELL = 30;
const GAP = 8;
const COLUMN = width / 24;

function Single({ panel, frames, width, height }: any) {
  const options = panel.options ?? {};
  const reduceOptions = { calcs: options.reduceOptions?.calcs ?? ['lastNotNull'], values: !!options.reduceOptions?.values };
  const values = getFieldDisplayValues({
    data: frames, reduceOptions, fieldConfig: panel.fieldConfig, replaceVariables, theme, timeZone: 'utc',
    sparkline: options.graphMode === 'area',
  } as any);
  const draw = ({ value, width, height }: any) => panel.type === 'stat'
    ? <BigValue {...{ width, height, theme }} value={value.display} sparkline={value.sparkline}
        colorMode={options.colorMode ?? 'value'} graphMode={options.graphMode ?? 'area'}
        justifyMode={options.justifyMode ?? 'auto'} textMode={options.textMode ?? 'auto'} />
    : <BarGauge {...{ width, height, theme }} value={value.display} field={value.field}
        display={value.view?.getFieldDisplayProcessor(value.colIndex)} orientation={options.orientation ?? 'horizontal'}
        displayMode={options.displayMode ?? 'gradient'} namePlacement={options.namePlacement} itemSpacing={8} lcdCellWidth={12} />;
  return <VizRepeater source={values} getValues={() => values as any} renderValue={draw} renderCounter={0}
    width={width} height={height} orientation={options.orientation ?? 'auto'} />;
}

function Body({ panel, width, height }: any) {
  const [frames, setFrames] = React.useState<any[] | null>(null);
  React.useEffect(() => {
    const raw = framesOf(panel, answers);
    const transformed = panel.transformations?.length
      ? lastValueFrom(transformDataFrame(panel.transformations, raw)) : Promise.resolve(raw);
    transformed.then((done) => setFrames(configured(panel, done as any[], theme)));
  }, []);
  if (!frames) return null;
  if (!frames.some((frame) => frame.length)) {
    const text = panel.fieldConfig?.defaults?.noValue;
    return text ? <div data-testid="empty-when-healthy">{text}</div> : <div data-testid="no-data">No data</div>;
  }
  const legend = { showLegend: true, displayMode: 'list', placement: 'bottom', calcs: [], ...panel.options?.legend };
  switch (panel.type) {
    case 'timeseries':
      return <TimeSeries {...({ frames, timeRange, timeZone: 'utc', width, height, legend, theme, options: {}, replaceVariables } as any)} />;
    case 'stat': case 'bargauge': return <Single {...{ panel, frames, width, height }} />;
    case 'table': return <TableNG {...({ data: frames[0], width, height, timeRange, showTypeIcons: false, structureRev: 1 } as any)} />;
    case 'heatmap': case 'state-timeline': return <Cells {...{ panel, frames, width, height, theme, from, to, step }} />;
    case 'barchart': return <Bars {...{ panel, frame: frames[0], width, height, theme }} />;
    default: return <div data-testid="unsupported">{panel.type}: not drawn here</div>;
  }
}

class Guard extends React.Component<any, any> {
  state = { error: null as any };
  static getDerivedStateFromError(error: any) { return { error }; }
  render() { return this.state.error ? <pre data-testid="crash">{String(this.state.error)}</pre> : this.props.children; }
}

function Placed({ panel }: any) {
  const { x, y, w, h } = panel.gridPos;
  const size = { width: w * COLUMN - GAP, height: h * (CELL + GAP) - GAP };
  const style: any = { position: 'absolute', left: x * COLUMN, top: y * (CELL + GAP), ...size };
  if (panel.type === 'row') return <h4 style={{ ...style, color: '#ccccdc', margin: 4 }}>{panel.title}</h4>;
  return (
    <div style={style}>
      <PanelChrome title={panel.title} {...size}>
        {(width: number, height: number) => <Guard><Body {...{ panel, width, height }} /></Guard>}
      </PanelChrome>
    </div>
  );
}

function Board() {
  const rows = Math.max(...board.panels.map(({ gridPos }: any) => gridPos.y + gridPos.h));
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ position: 'relative', width, height: rows * (CELL + GAP) }}>
        {board.panels.map((panel: any) => <Placed key={panel.id} panel={panel} />)}
      </div>
      <PortalContainer />
    </ThemeContext.Provider>
  );
}

initPluginTranslations('heterotp').then(() => createRoot(document.getElementById('root')!).render(<Board />));
