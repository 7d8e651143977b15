// The type of a dashboard, from Grafana's own types. JSON has no enums, so each enum becomes its values.
import type { Dashboard, GraphFieldConfig, Panel, RowPanel } from "@grafana/schema";
import type * as BarChart from "@grafana/schema/dist/esm/raw/composable/barchart/panelcfg/x/BarChartPanelCfg_types.gen";
import type * as BarGauge from "@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen";
import type * as Gauge from "@grafana/schema/dist/esm/raw/composable/gauge/panelcfg/x/GaugePanelCfg_types.gen";
import type * as Heatmap from "@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen";
import type * as Stat from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type * as Table from "@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen";
import type * as TimeSeries from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

type Literal<T extends string | number> = `${T}` extends `${infer N extends number}` ? N | T : `${T}`;
// Any number may stand for a numeric enum, but only wide types make a record without required keys.
type Wide<T extends string | number> = {} extends Record<T, 1> ? true : false;
type Plain<T> = T extends boolean | null | undefined ? T
  : T extends string | number ? (Wide<T> extends true ? T : Literal<T>)
  : T extends (infer E)[] ? Plain<E>[]
  : T extends object ? { [K in keyof T]: Plain<T[K]> }
  : T;

// Grafana's package does not type queries. These are the fields of the queries that we use.
type Source<Type> = { type: Type; uid: "${datasource}" };
type PrometheusQuery = {
  refId: string;
  datasource: Source<"prometheus">;
  editorMode: "code";
  expr: string;
  legendFormat?: string;
  instant: boolean;
  range: boolean;
  format?: "time_series" | "table" | "heatmap";
  exemplar?: boolean;
};
// From src/types/sql.ts of the data source's plugin.
type ClickHouseQuery = {
  refId: string;
  datasource: Source<"grafana-clickhouse-datasource">;
  pluginVersion: string;
  editorType: "sql";
  queryType: "table" | "timeseries";
  format: 0 | 1;
  rawSql: string;
};
type Asks<Query extends { datasource: unknown }> = { datasource: Query["datasource"]; targets: Query[] };

type Common = Omit<Panel, "type" | "options" | "fieldConfig" | "targets" | "id" | "title" | "description" | "gridPos" | "datasource">;
type Of<Type extends string, Options, Custom> = Plain<Common & Required<Pick<Panel, "id" | "title" | "description" | "gridPos">>> & {
  type: Type;
  options: Plain<Options>;
  fieldConfig: {
    defaults: Omit<Plain<NonNullable<Panel["fieldConfig"]>["defaults"]>, "custom" | "unit"> & { unit: string; custom?: Plain<Custom> };
    overrides: Plain<NonNullable<Panel["fieldConfig"]>["overrides"]>;
  };
} & (Asks<PrometheusQuery> | Asks<ClickHouseQuery>);

type InRow =
  | Of<"timeseries", TimeSeries.Options, GraphFieldConfig>
  | Of<"heatmap", Heatmap.Options, Heatmap.FieldConfig>
  | Of<"stat", Stat.Options, never>
  | Of<"gauge", Gauge.Options, never>
  | Of<"barchart", BarChart.Options, Partial<BarChart.FieldConfig>>
  | Of<"bargauge", BarGauge.Options, never>
  | Of<"table", Partial<Table.Options>, Table.FieldConfig>;
type AnyPanel = InRow | (Plain<Omit<RowPanel, "type" | "panels">> & { type: "row"; panels: InRow[] });

// Grafana's package does not type the fields of Prometheus annotations. These are the fields that Grafana reads.
type Marks = Plain<NonNullable<NonNullable<Dashboard["annotations"]>["list"]>[number]>;
type PrometheusMarks = Omit<Marks, "datasource"> & {
  datasource: PrometheusQuery["datasource"];
  expr: string;
  step: string;
  tagKeys: string;
  titleFormat: string;
  textFormat: string;
  useValueForTime: boolean;
};

/** A dashboard of ours. */
export type Ours = Omit<Plain<Dashboard>, "panels" | "id" | "schemaVersion" | "annotations"> & {
  annotations: { list: (Marks | PrometheusMarks)[] };
  id: null;
  schemaVersion: 42;
  panels: AnyPanel[];
};
