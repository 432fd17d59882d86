// The page of a job that runs: asks its server for what is new, and sends what the buttons ask for.
const RETRY_SECONDS = 5;
let newest = Date.now(); // of the last answer

// puts what the server sent into `run`; returns the first column that changed
function take(news) {
  const { first, key, decided } = news.live, anew = key !== run.live.key, decisionsChanged = decided !== run.live.decided;
  for (const name of ["iteration", "seconds", "loss", "accuracy"]) news[name] = anew ? news[name] : run[name].slice(0, first).concat(news[name]);
  for (const name of ["chi", "lost"]) if (!anew) news[name] = news[name].map((line, rank) => run[name][rank].slice(0, first).concat(line));
  if (news.decisions === null) news.decisions = run.decisions;
  Object.assign(run, news);
  return { first: anew ? 0 : first, decisionsChanged };
}

function show({ first, decisionsChanged }) {
  facts();
  showState();
  newPoints();
  drawHeat(first);
  fillTable();
  if (decisionsChanged) decisions();
  tell();
}

function showState() {
  const { stall, note, running, controls } = run.live;
  put(at("alarm"), [stall, note].filter(Boolean).join(" · "));
  put(at("state"), running ? "live" : `the run has ended: ${run.state}`);
  at("controls").hidden = !controls;
  const policy = at("policy");
  if (!policy.dataset.touched && run.live.strategies.includes(run.strategy)) policy.elements.strategy.value = run.strategy;
}

async function ask() {
  const { key, decided, mark } = run.live;
  const query = new URLSearchParams({ key, decided, mark, columns: run.iteration.length });
  const answer = await fetch(`data?${query}`, { cache: "no-store" });
  if (answer.status === 204) return;
  if (!answer.ok) throw new Error(await answer.text());
  show(take(await answer.json()));
}

async function poll() {
  let wait = run.live.everySeconds;
  try {
    await ask();
    newest = Date.now();
    showState();
  } catch {
    wait = Math.max(wait, run.live.running ? wait : RETRY_SECONDS);
    put(at("state"), run.live.running ? "no answer: the page shows what was last seen" : `the run has ended: ${run.state}`);
    at("controls").hidden = true;
  }
  put(at("updated"), `as of ${new Date(newest).toLocaleTimeString()}`);
  setTimeout(poll, wait * 1000);
}

async function send(path, body) {
  const buttons = document.querySelectorAll("#controls button");
  put(at("answer"), "asked; waiting until all ranks follow");
  buttons.forEach((button) => { button.ariaDisabled = "true"; });
  try {
    const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    const told = await answer.json();
    put(at("answer"), told.verdict === "refused" ? `refused: ${told.message}` : told.message);
  } catch {
    put(at("answer"), "no answer: it is not known whether the change was made");
  }
  buttons.forEach((button) => { button.ariaDisabled = null; });
}

const number = (form, name) => (form.elements[name].value === "" ? undefined : Number(form.elements[name].value));

function controlEvents() {
  const policy = at("policy"), injection = at("injection");
  for (const strategy of run.live.strategies) element("option", strategy, policy.elements.strategy).value = strategy;
  policy.elements.strategy.addEventListener("change", () => { policy.dataset.touched = "yes"; });
  policy.addEventListener("submit", (event) => {
    event.preventDefault();
    send("policy", { strategy: policy.elements.strategy.value, maxPrunedShare: number(policy, "maxPrunedShare") });
  });
  at("default").addEventListener("click", () => send("policy", { default: true }));
  injection.addEventListener("submit", (event) => {
    event.preventDefault();
    send("injection", { rank: number(injection, "rank"), slowdown: number(injection, "slowdown"), seconds: number(injection, "seconds") });
  });
  at("stop").addEventListener("click", () => {
    if (injection.elements.rank.reportValidity()) send("injection", { rank: number(injection, "rank"), stop: true });
  });
}

if (run.live) {
  at("live").hidden = false;
  controlEvents();
  showState();
  setTimeout(poll, run.live.everySeconds * 1000);
}
document.body.dataset.ready = "yes";
