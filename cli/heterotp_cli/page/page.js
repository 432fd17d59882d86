"use strict";
// Texts of a run are set by textContent alone: they may be a stranger's.
const run = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const PHASES = { matmul: "#2f6fb3", unit: "#7fb2e0", fixed: "#8a8f98", migrate: "#c45a9b", data: "#b9a7d6", control: "#6b4fa0", wait: "#e8a33d" };
const PAGE = 50;
const dark = matchMedia("(prefers-color-scheme: dark)");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const ms = (value) => (value === null ? "-" : (value * 1000).toFixed(1) + " ms");
const times = (value) => (value === null ? "-" : value.toFixed(2) + "x");
const percent = (value) => (value === null ? "-" : (value * 100).toFixed(1) + " %");

function element(name, text, parent) {
  const made = document.createElement(name);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

function facts() {
  document.querySelector("h1").textContent = `${run.job}: ${run.state}`;
  const known = [`attempt ${run.attempt}`, `${run.iterations} iterations`];
  if (run.iterationSeconds) known.push(`median ${ms(run.iterationSeconds.median)}`);
  if (run.limitIterationSeconds !== null) known.push(`limit ${ms(run.limitIterationSeconds)}`);
  if (run.testAccuracy !== null) known.push(`test accuracy ${percent(run.testAccuracy)}`);
  if (run.savedSeconds !== null) known.push(`balancing saved ${run.savedSeconds.toFixed(1)} s`);
  if (run.emulated) known.push("emulated devices");
  at("facts").textContent = known.join(" · ");
  at("reason").textContent = run.reason || "";
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

function plot(place, data, series, scales, hooks) {
  place.replaceChildren();
  const axis = { stroke: colour("--ink"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } };
  const sides = Object.keys(scales).map((scale, i) => ({ ...axis, scale, side: i ? 1 : 3, size: 60, grid: { ...axis.grid, show: !i } }));
  const options = { width: place.clientWidth, height: 240, scales: { x: { time: false }, ...scales }, hooks };
  new uPlot({ ...options, axes: [axis, ...sides], series: [{ label: "iteration" }, ...series] }, data, place);
}

function plots() {
  const milliseconds = run.seconds.map((value) => (value === null ? null : value * 1000));
  const limit = run.limitIterationSeconds === null ? null : run.limitIterationSeconds * 1000;
  const line = (label, stroke, scale) => ({ label, stroke, scale, width: 1.5, spanGaps: true });
  plot(at("time"), [run.iteration, milliseconds, run.iteration.map(() => limit)],
    [line("time, ms", colour("--time"), "ms"), { ...line("limit, ms", "#c8452f", "ms"), dash: [6, 4] }],
    { ms: { range: (_, low, high) => [0, (high || 1) * 1.05] } }, { draw: [marks] });
  plot(at("loss"), [run.iteration, run.loss, run.accuracy.map((value) => (value === null ? null : value * 100))],
    [line("loss", dark.matches ? "#b9a7d6" : "#6b4fa0", "loss"), line("accuracy, %", "#3a8f5c", "%")],
    { loss: {}, "%": { range: [0, 100] } }, {});
}

// from 1 (as fast as the reference rank) to 4 and more
function heat(chi) {
  if (chi === null) return colour("--none");
  const part = Math.min(1, Math.max(0, (chi - 1) / 3));
  const [from, to] = [dark.matches ? [38, 66, 100] : [214, 230, 245], dark.matches ? [255, 120, 90] : [200, 69, 47]];
  return `rgb(${from.map((value, i) => Math.round(value + part * (to[i] - value))).join(",")})`;
}

const picked = { rank: 0, column: 0 };

function drawHeat() {
  const canvas = at("heat"), rows = run.chi.length, columns = run.iteration.length;
  const row = Math.max(1, Math.min(24, Math.ceil(480 / Math.max(1, rows))));
  canvas.width = canvas.clientWidth;
  canvas.height = row * rows;
  canvas.style.height = canvas.height + "px";
  const context = canvas.getContext("2d"), wide = canvas.width / Math.max(1, columns);
  run.chi.forEach((line, rank) => line.forEach((chi, column) => {
    context.fillStyle = heat(chi);
    context.fillRect(Math.floor(column * wide), rank * row, Math.ceil(wide), row > 4 ? row - 1 : row);
  }));
}

function tell() {
  const line = run.chi[picked.rank];
  if (!line || !line.length) return;
  at("cell").textContent = `rank ${picked.rank}, iteration ${run.iteration[picked.column]}: ${times(line[picked.column])}`;
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
  const scale = at("scale");
  scale.append("chi");
  for (const chi of [1, 2, 3, 4]) {
    const key = element("span", "", scale);
    key.className = "key";
    key.dataset.chi = chi;
    scale.append(chi === 4 ? "4x and more" : `${chi}x`);
  }
}

function colourScale() {
  for (const key of at("scale").querySelectorAll(".key")) key.style.background = heat(Number(key.dataset.chi));
}

const busy = (rank) => Object.keys(PHASES).reduce((sum, phase) => sum + (phase === "wait" ? 0 : rank[phase] || 0), 0);
const total = (rank) => busy(rank) + (rank.wait || 0);
const longest = Math.max(...run.ranks.map(total), 1e-9);
const COLUMNS = [
  ["rank", (r) => r.rank, String], ["group", (r) => r.group, String], ["share", (r) => r.share, percent],
  ["chi", (r) => r.slowdown, times], ["injected", (r) => r.injectedSlowdown, times], ["pruned", (r) => r.prunedRatio, percent],
  ["migrated", (r) => r.migratedRatio, percent], ["busy", busy, ms], ["wait", (r) => r.wait, ms],
];
const table = { first: 0, by: 0, down: false };

function order(one, other) {
  const [a, b] = [one, other].map(COLUMNS[table.by][1]);
  if (a === null || b === null) return (a === null) - (b === null);
  return (a < b ? -1 : a > b ? 1 : 0) * (table.down ? -1 : 1);
}

function fillTable() {
  const body = document.querySelector("#ranks tbody"), rows = [...run.ranks].sort(order).slice(table.first, table.first + PAGE);
  body.replaceChildren();
  for (const rank of rows) {
    const row = element("tr", null, body);
    for (const [, value, text] of COLUMNS) element("td", text(value(rank)), row);
    const cell = element("td", null, row);
    cell.className = "bar";
    const stack = element("div", null, cell);
    stack.className = "stack";
    for (const [phase, fill] of Object.entries(PHASES)) {
      const part = element("div", null, stack);
      part.title = `${phase} ${ms(rank[phase])}`;
      part.style.cssText = `background:${fill};width:${(rank[phase] || 0) / longest * 100}%`;
    }
  }
  at("shown").textContent = `${table.first + 1}-${table.first + rows.length} of ${run.ranks.length}`;
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
  element("th", "mean time of an iteration", head);
  for (const [phase, fill] of Object.entries(PHASES)) {
    const key = element("span", "", at("legend"));
    key.className = "key";
    key.style.background = fill;
    at("legend").append(phase);
  }
  const turn = (by) => () => { table.first += by; fillTable(); };
  at("previous").addEventListener("click", turn(-PAGE));
  at("next").addEventListener("click", turn(PAGE));
  at("pages").hidden = run.ranks.length <= PAGE;
}

function decisions() {
  if (run.leftOut) at("left").textContent = `${run.leftOut} decisions are left out`;
  if (!run.decisions.length) element("li", "none", at("decisions"));
  for (const made of run.decisions)
    element("li", `iteration ${made.iteration} (attempt ${made.attempt}, decision ${made.decisionId}): ${made.reason}`, at("decisions"));
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
addEventListener("resize", draw);
document.body.dataset.ready = "yes";
