// Converts responses of Prometheus to Grafana's data frames and applies the panel's field options.
import {
  cacheFieldDisplayNames, DataFrame, fieldMatchers, FieldType, getDisplayProcessor, GrafanaTheme2, standardTransformers,
  standardTransformersRegistry, toDataFrame,
} from '@grafana/data';
import { set } from 'lodash';

// each transformation once: the list contains duplicates
const transformers = new Map<string, any>(Object.values(standardTransformers).map((one: any) => [one.id, one]));
standardTransformersRegistry.setInit(() =>
  [...transformers.values()].map((one) => ({
    id: one.id, name: one.name, transformation: () => Promise.resolve(one), editor: null,
  })) as any);

type Series = { metric: Record<string, string>; value?: [number, string]; values?: [number, string][] };

const labelled = (labels: Record<string, string>) =>
  Object.entries(labels).filter(([key]) => key !== '__name__').map(([key, value]) => `${key}="${value}"`).join(', ');

export const legendOf = (format: string | undefined, labels: Record<string, string>) =>
  !format || format === '__auto' ? labelled(labels) : format.replace(/{{\s*(\w+)\s*}}/g, (_, key) => labels[key] ?? '');

function tableFrame(target: any, series: Series[], several: boolean): DataFrame {
  const keys = [...new Set(series.flatMap((one) => Object.keys(one.metric)))].filter((key) => key !== '__name__').sort();
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: series.map((one) => one.value![0] * 1000) },
      ...keys.map((key) => ({ name: key, type: FieldType.string, values: series.map((one) => one.metric[key] ?? '') })),
      {
        name: several ? `Value #${target.refId}` : 'Value', type: FieldType.number,
        values: series.map((one) => Number(one.value![1])),
      },
    ],
  });
}

function seriesFrame(target: any, one: Series): DataFrame {
  const points = one.values ?? [one.value!];
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: points.map((point) => point[0] * 1000) },
      {
        name: 'Value', type: FieldType.number, labels: one.metric, values: points.map((point) => Number(point[1])),
        config: { displayNameFromDS: legendOf(target.legendFormat, one.metric) },
      },
    ],
  });
}

export function framesOf(panel: any, answers: Record<string, Series[]>): DataFrame[] {
  const targets = panel.targets ?? [];
  return targets.flatMap((target: any) => {
    const series = answers[`${panel.id}/${target.refId}`] ?? [];
    return target.format === 'table'
      ? [tableFrame(target, series, targets.length > 1)]
      : series.map((one) => seriesFrame(target, one));
  });
}

const withoutNull = (thresholds: any) => ({
  ...thresholds, steps: thresholds.steps.map((step: any) => ({ ...step, value: step.value ?? -Infinity })),
});
const NO_THRESHOLDS = { mode: 'absolute', steps: [{ color: 'green', value: null }] };

// the range of colours and bars: the panel's own, else that of all its values
function rangeOf(field: any, all: number[]) {
  if (field.type !== FieldType.number) return undefined;
  const min = field.config.min ?? Math.min(...all);
  const max = field.config.max ?? Math.max(...all);
  return { min, max, delta: max - min };
}

export function configured(panel: any, frames: DataFrame[], theme: GrafanaTheme2): DataFrame[] {
  const { defaults = {}, overrides = [] } = panel.fieldConfig ?? {};
  const mode = panel.type === 'timeseries' || panel.type === 'barchart' ? 'palette-classic' : 'thresholds';
  frames.forEach((frame) => frame.fields.forEach((field: any) => {
    const own = field.type === FieldType.number ? defaults : { custom: defaults.custom };
    field.config = { color: { mode }, thresholds: NO_THRESHOLDS, ...field.config, ...own, custom: { ...defaults.custom } };
  }));
  for (const { matcher, properties } of overrides) {
    const matches = fieldMatchers.get(matcher.id).get(matcher.options);
    frames.forEach((frame) => frame.fields.filter((field) => matches(field, frame, frames)).forEach((field) =>
      properties.forEach((property: any) => set(field.config, property.id, property.value))));
  }
  const all = frames.flatMap((frame) => frame.fields.filter((field) => field.type === FieldType.number))
    .flatMap((field) => field.values.filter(Number.isFinite));
  let index = 0;
  frames.forEach((frame, frameIndex) => frame.fields.forEach((field: any, fieldIndex: number) => {
    field.config.thresholds = withoutNull(field.config.thresholds);
    const seriesIndex = field.type === FieldType.number ? index++ : 0;
    field.state = { seriesIndex, range: rangeOf(field, all), origin: { frameIndex, fieldIndex } };
    field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
    field.getLinks = () => [];
  }));
  cacheFieldDisplayNames(frames);
  return frames;
}
