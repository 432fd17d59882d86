"use strict";
// Texts of a run are set by textContent alone: they may be a stranger's.
const run = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const PHASES = { matmul: "#2f6fb3", unit: "#7fb2e0", fixed: "#8a8f98", other: "#7fb2e0", migrate: "#c45a9b", data: "#b9a7d6", control: "#6b4fa0", wait: "#e8a33d" };
const PAGE = 50;
const dark = matchMedia("(prefers-color-scheme: dark)");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const absent = (value) => value === null || value === undefined;
const ms = (value) => (absent(value) ? "-" : (value * 1000).toFixed(1) + " ms");
const times = (value) => (absent(value) ? "-" : value.toFixed(2) + "x");
const percent = (value) => (absent(value) ? "-" : (value * 100).toFixed(1) + " %");

function element(name, text, parent) {
  const made = document.createElement(name);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function facts() {
  put(document.querySelector("h1"), `${run.job}: ${run.state}`);
  const known = absent(run.attempt) ? [] : [`attempt ${run.attempt}`];
  if (!absent(run.iterations)) known.push(`${run.iterations} iterations`);
  if (run.strategy) known.push(`strategy ${run.strategy}`);
  if (run.iterationSeconds) known.push(`median ${ms(run.iterationSeconds.median)}`);
  if (!absent(run.limitIterationSeconds)) known.push(`limit ${ms(run.limitIterationSeconds)}`);
  if (!absent(run.testAccuracy)) known.push(`test accuracy ${percent(run.testAccuracy)}`);
  if (!absent(run.savedSeconds)) known.push(`balancing saved ${run.savedSeconds.toFixed(1)} s`);
  if (run.emulated) known.push("emulated devices");
  put(at("facts"), known.join(" · "));
  put(at("reason"), (run.live ? run.live.explanation : run.reason) || "");
}

function marks(plot) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour("--soft");
  ctx.setLineDash([3, 3]);
  for (const { iteration } of run.decisions) {
    const x = plot.valToPos(iteration, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

const charts = new Map();

function plot(place, data, series, scales, hooks) {
  charts.get(place)?.destroy();
  const axis = { stroke: colour("--ink"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } };
  const sides = Object.keys(scales).map((scale, i) => ({ ...axis, scale, side: i ? 1 : 3, size: 60, grid: { ...axis.grid, show: !i } }));
  const options = { width: place.clientWidth, height: 240, scales: { x: { time: false }, ...scales }, hooks };
  charts.set(place, new uPlot({ ...options, axes: [axis, ...sides], series: [{ label: "iteration" }, ...series] }, data, place));
}

function timeData() {
  const limit = absent(run.limitIterationSeconds) ? null : run.limitIterationSeconds * 1000;
  return [run.iteration, run.seconds.map((value) => (value === null ? null : value * 1000)), run.iteration.map(() => limit)];
}

const lossData = () => [run.iteration, run.loss, run.accuracy.map((value) => (value === null ? null : value * 100))];

function plots() {
  const line = (label, stroke, scale) => ({ label, stroke, scale, width: 1.5, spanGaps: true });
  plot(at("time"), timeData(),
    [line("time, ms", colour("--time"), "ms"), { ...line("limit, ms", "#c8452f", "ms"), dash: [6, 4] }],
    { ms: { range: (_, low, high) => [0, (high || 1) * 1.05] } }, { draw: [marks] });
  plot(at("loss"), lossData(),
    [line("loss", dark.matches ? "#b9a7d6" : "#6b4fa0", "loss"), line("accuracy, %", "#3a8f5c", "%")],
    { loss: {}, "%": { range: [0, 100] } }, {});
}

function newPoints() {
  charts.get(at("time")).setData(timeData());
  charts.get(at("loss")).setData(lossData());
}

// what the heat map may show: part: of the scale, 0 to 1
const COLOURS = {
  chi: { lines: () => run.chi, part: (chi) => (chi - 1) / 3, text: times, keys: [[1, "1x"], [2, "2x"], [3, "3x"], [4, "4x and more"]] },
  lost: { lines: () => run.lost, part: (share) => share * 2, text: percent, keys: [[0, "0 %"], [0.1, "10 %"], [0.25, "25 %"], [0.5, "50 % of an iteration and more"]] },
};
const coloured = () => COLOURS[at("colour").value];

function heat(value) {
  if (value === null) return dark.matches ? [44, 49, 56] : [228, 231, 235];
  const part = Math.min(1, Math.max(0, coloured().part(value)));
  const [from, to] = [dark.matches ? [38, 66, 100] : [214, 230, 245], dark.matches ? [255, 120, 90] : [200, 69, 47]];
  return from.map((value, i) => Math.round(value + part * (to[i] - value)));
}

const picked = { rank: 0, column: 0 };

const cells = document.createElement("canvas"); // one pixel per rank and column

// paints the columns from number `first` on, and draws all of them at the size of the page
function drawHeat(first = 0) {
  const canvas = at("heat"), rows = coloured().lines().length, columns = run.iteration.length;
  const row = Math.max(1, Math.min(24, Math.ceil(480 / Math.max(1, rows))));
  canvas.width = canvas.clientWidth;
  canvas.height = row * rows;
  canvas.style.height = canvas.height + "px";
  if (!rows || !columns) return;
  paintCells(Math.min(first, cells.width), rows, columns);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(cells, 0, 0, columns, rows, 0, 0, canvas.width, canvas.height);
  context.fillStyle = colour("--panel");
  if (row > 4) for (let rank = 0; rank < rows; rank++) context.fillRect(0, (rank + 1) * row - 1, canvas.width, 1);
}

function paintCells(first, rows, columns) {
  const context = cells.getContext("2d", { willReadFrequently: true });
  if (cells.width !== columns || cells.height !== rows) {
    const kept = cells.height === rows && first > 0 ? context.getImageData(0, 0, first, rows) : null;
    Object.assign(cells, { width: columns, height: rows });
    if (kept) context.putImageData(kept, 0, 0);
    else first = 0;
  }
  if (first >= columns) return;
  const lines = coloured().lines(), image = context.createImageData(columns - first, rows);
  for (let rank = 0, i = 0; rank < rows; rank++)
    for (let column = first; column < columns; column++, i += 4) image.data.set([...heat(lines[rank][column]), 255], i);
  context.putImageData(image, first, 0);
}

function tell() {
  const line = coloured().lines()[picked.rank];
  if (!line || !line.length) return;
  picked.column = Math.min(picked.column, line.length - 1);
  at("cell").textContent = `rank ${picked.rank}, iteration ${run.iteration[picked.column]}: ${coloured().text(line[picked.column])}`;
}

function pick(rank, column) {
  picked.rank = Math.max(0, Math.min(run.chi.length - 1, rank));
  picked.column = Math.max(0, Math.min(run.iteration.length - 1, column));
  tell();
}

function heatEvents() {
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  at("heat").addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    pick(picked.rank + step[0], picked.column + step[1]);
  });
  at("heat").addEventListener("mousemove", (event) => {
    const box = at("heat").getBoundingClientRect();
    pick(Math.floor((event.clientY - box.top) / box.height * run.chi.length),
      Math.floor((event.clientX - box.left) / box.width * run.iteration.length));
  });
  at("colour").addEventListener("change", () => {
    drawHeat();
    colourScale();
    tell();
  });
}

function colourScale() {
  const scale = at("scale");
  scale.replaceChildren();
  for (const [value, text] of coloured().keys) {
    const key = element("span", "", scale);
    key.className = "key";
    key.style.background = `rgb(${heat(value).join(",")})`;
    scale.append(text);
  }
}

const busy = (rank) => Object.keys(PHASES).reduce((sum, phase) => sum + (phase === "wait" ? 0 : rank[phase] || 0), 0);
const total = (rank) => busy(rank) + (rank.wait || 0);
const COLUMNS = [
  ["rank", (r) => r.rank, String], ["group", (r) => r.group, (group) => group || "-"], ["share", (r) => r.share, percent],
  ["chi", (r) => r.slowdown, times], ["injected", (r) => r.injectedSlowdown, times], ["pruned", (r) => r.prunedRatio, percent],
  ["migrated", (r) => r.migratedRatio, percent], ["busy", busy, ms], ["wait", (r) => r.wait, ms],
];
const table = { first: 0, by: 0, down: false };

function order(one, other) {
  const [a, b] = [one, other].map(COLUMNS[table.by][1]);
  if (absent(a) || absent(b)) return absent(a) - absent(b);
  return (a < b ? -1 : a > b ? 1 : 0) * (table.down ? -1 : 1);
}

function newRow(body) {
  const row = element("tr", null, body);
  for (const _ of COLUMNS) element("td", "", row);
  const cell = element("td", null, row);
  cell.className = "bar";
  const stack = element("div", null, cell);
  stack.className = "stack";
  for (const fill of Object.values(PHASES)) element("div", null, stack).style.background = fill;
  return row;
}

// rows that are there keep their elements: only what changed is written
function fillTable() {
  if (table.first >= run.ranks.length) table.first = 0;
  const body = document.querySelector("#ranks tbody"), rows = [...run.ranks].sort(order).slice(table.first, table.first + PAGE);
  const longest = run.ranks.reduce((most, rank) => Math.max(most, total(rank)), 1e-9);
  while (body.rows.length > rows.length) body.lastChild.remove();
  rows.forEach((rank, i) => {
    const row = body.rows[i] || newRow(body);
    COLUMNS.forEach(([, value, text], column) => put(row.cells[column], text(value(rank))));
    const parts = row.querySelectorAll(".stack div");
    Object.keys(PHASES).forEach((phase, part) => {
      parts[part].title = `${phase} ${ms(rank[phase])}`;
      parts[part].style.width = `${((rank[phase] || 0) / longest) * 100}%`;
    });
  });
  at("pages").hidden = run.ranks.length <= PAGE;
  put(at("shown"), rows.length ? `${table.first + 1}-${table.first + rows.length} of ${run.ranks.length}` : "none");
  at("previous").disabled = table.first === 0;
  at("next").disabled = table.first + PAGE >= run.ranks.length;
  document.querySelectorAll("#ranks th").forEach((head, i) => {
    if (i < COLUMNS.length) head.ariaSort = i !== table.by ? "none" : table.down ? "descending" : "ascending";
  });
}

function tableEvents() {
  const head = document.querySelector("#ranks thead tr");
  COLUMNS.forEach(([name], i) => {
    const button = element("button", name, element("th", null, head));
    button.type = "button";
    button.addEventListener("click", () => {
      Object.assign(table, { first: 0, by: i, down: table.by === i ? !table.down : i > 1 });
      fillTable();
    });
  });
  element("th", run.live ? "time of an iteration now" : "mean time of an iteration", head);
  for (const [phase, fill] of Object.entries(PHASES)) {
    if (phase === "other" && run.ranks.every((rank) => absent(rank.other))) continue;
    const key = element("span", "", at("legend"));
    key.className = "key";
    key.style.background = fill;
    at("legend").append(phase);
  }
  const turn = (by) => () => { table.first += by; fillTable(); };
  at("previous").addEventListener("click", turn(-PAGE));
  at("next").addEventListener("click", turn(PAGE));
}

function decisions() {
  put(at("left"), run.leftOut ? `${run.leftOut} decisions are left out` : "");
  at("decisions").replaceChildren();
  if (!run.decisions.length) element("li", "none", at("decisions"));
  for (const made of run.decisions) {
    const number = absent(made.decisionId) ? "" : `, decision ${made.decisionId}`;
    element("li", `iteration ${made.iteration} (attempt ${made.attempt}${number}): ${made.reason}`, at("decisions"));
  }
}

function draw() {
  plots();
  drawHeat();
  colourScale();
}

facts();
heatEvents();
tableEvents();
fillTable();
decisions();
draw();
tell();
dark.addEventListener("change", draw);
addEventListener("resize", () => draw());

