// The page of evict serve: a chat, and what was kept of its prompts. Texts of the model are text, never markup.
const $ = id => document.getElementById(id);
const keyName = "glimpse-api-key"; // in the tab's storage

let model = "";
let defaults = {};       // policy and budget of requests that name none
let adapters = [];
let budget = "";         // that was chosen, as requests say it: "25%"; "" is the server's
let messages = [];       // of the conversation, as the API has them
let running = null;      // the AbortController of the answer that is being written, or of the document that is being compressed
let doc = null;          // that questions are asked behind: the context's name, and the text

// call sends a request. A failure is an Error with the server's words, status and param.
async function call(path, body, signal, method = body ? "POST" : "GET") {
  const headers = {"Content-Type": "application/json"}, key = sessionStorage.getItem(keyName);
  if (key) headers.Authorization = `Bearer ${key}`;
  const response = await fetch(path, {method, headers, body: body && JSON.stringify(body), signal});
  if (response.ok) return response;
  const error = (await response.json().catch(() => ({}))).error || {};
  if (response.status === 401) askForKey();
  throw Object.assign(new Error(error.message || `${path}: status ${response.status}`), {status: response.status, param: error.param});
}

function askForKey() {
  $("login").hidden = false;
  $("key").focus();
}

function say(text, bad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
}

async function start() {
  try {
    const models = await (await call("/v1/models")).json();
    adapters = (await (await call("/v1/adapters")).json()).data;
    $("login").hidden = true;
    ({id: model, eviction: defaults} = models.data[0]);
    $("model").textContent = $("model").title = model;
    document.title = `${model}: Glimpse`;
    $("policy").replaceChildren(new Option(`${defaults.policy} (default)`, ""), ...models.policies.map(name => new Option(name)));
    $("lossy").hidden = !defaults.lossy;
    $("lossy").textContent = `This server is lossy: ${defaults.policy} at ${amount(defaults.budget)} leaves out a part of ` +
      `${defaults.full_below > 0 ? `prompts of ${defaults.full_below} tokens and more` : "every prompt"}, so that answers may differ from the full cache's.`;
    $("hint").hidden = $("log").childElementCount > 0;
    showBudget();
    offerAdapters();
    say("");
  } catch (e) {
    say(e.message, true);
    if (e.status === 503) setTimeout(start, 2000); // the model is being loaded
  }
}

// policy is the one that answers: what was chosen, or the server's.
const policy = () => $("policy").value || defaults.policy;
const amount = budget => budget.endsWith("%") ? budget : `${budget} entries`;

// showBudget shows the budget that was chosen, or the server's, which keeps all of short prompts.
function showBudget() {
  const whole = policy() === "full", share = /^(\d+(?:\.\d+)?)%$/.exec(budget || defaults.budget);
  if (share) $("budget").value = share[1];
  $("budget").disabled = whole;
  $("share").textContent = whole ? "all" : amount(budget || defaults.budget);
  $("budget").setAttribute("aria-valuetext", $("share").textContent);
}

function offerAdapters() {
  const fit = adapters.filter(a => a.policy === policy());
  $("adapter").replaceChildren(new Option(fit.length ? "the usual" : "none", ""), ...fit.map(a => new Option(a.name)));
  $("adapter").disabled = !fit.length;
}

// events sends a request and yields the events that it is answered with.
async function* events(path, body, signal) {
  let response;
  try {
    response = await call(path, body, signal);
  } catch (e) {
    if (e.param !== "eviction.kept") throw e; // a prompt too long to be shown
    response = await call(path, {...body, eviction: {...body.eviction, kept: false}}, signal);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", ended = false;
  for (;;) {
    const {value, done} = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      if (line === "data: [DONE]") { ended = true; continue; }
      const part = JSON.parse(line.slice(6));
      if (part.error) throw new Error(part.error.message);
      yield part;
    }
  }
  if (!ended) throw new Error("The answer broke off.");
}

// stream asks for an answer and calls onText with what there is of it, and of the thoughts before it. It returns the usage and the time of the first token.
async function stream(body, signal, onText) {
  const began = performance.now();
  let usage = null, first = 0;
  for await (const part of events("/v1/chat/completions", body, signal)) {
    usage = part.usage || usage;
    const {content, reasoning_content: thoughts} = part.choices[0]?.delta || {};
    if (!content && !thoughts) continue;
    first ||= performance.now() - began;
    onText(content || "", thoughts || "");
  }
  return {usage, first};
}

const fullCache = "full cache"; // the title of its answers

// chosen is what the user has chosen of policy, budget and adapter: what was not chosen is the server's to say.
function chosen() {
  const all = {policy: $("policy").value, budget: $("budget").disabled ? "" : budget, adapter: $("adapter").value};
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value));
}

// write has an answer written below a title, and returns its text with what stream returns. Stopped, what there is remains.
async function write(turn, title, asked, eviction) {
  const answer = $("answer-template").content.cloneNode(true).firstElementChild;
  const [text, facts] = answer.querySelectorAll("p"), thinking = answer.querySelector("details");
  answer.querySelector("h3").textContent = title;
  answer.classList.toggle("full", title === fullCache);
  turn.querySelector(".answers").append(answer);
  running = new AbortController();
  setBusy(true);
  say("The prompt is being read.");
  const out = {text: "", thoughts: "", usage: null, facts};
  try {
    const body = {model, messages: asked, temperature: 0, stream: true, stream_options: {include_usage: true}, eviction};
    Object.assign(out, await stream(body, running.signal, (part, thought) => {
      if (!out.text) say(part ? "The answer is being written." : "The model thinks.");
      out.text += part;
      out.thoughts += thought;
      const follow = atEnd();
      text.append(part); // a string: text
      thinking.lastElementChild.append(thought);
      thinking.hidden = !out.thoughts;
      if (follow) scrollToEnd();
    }));
    const u = out.usage;
    const speed = u.eviction.tokens_per_s ? `${number(u.eviction.tokens_per_s)} tokens/s` : `${u.completion_tokens} tokens`;
    facts.textContent = `${speed}, first after ${duration(out.first || u.eviction.prefill_ms)}`;
    say("");
  } catch (e) {
    const stopped = e.name === "AbortError";
    facts.textContent = stopped ? "stopped" : "failed";
    say(stopped ? "Stopped." : e.message, !stopped);
  } finally {
    running = null;
    setBusy(false);
  }
  return out;
}

function setBusy(busy) {
  $("log").setAttribute("aria-busy", busy);
  $("send").disabled = $("clear").disabled = $("choose").disabled = $("take-away").disabled = busy;
  $("stop").disabled = !busy;
  for (const b of document.querySelectorAll(".compare")) b.disabled = busy;
}

async function send() {
  const text = $("message").value.trim();
  if (!text || running || !model) return;
  $("message").value = "";
  $("hint").hidden = true;
  const turn = $("turn-template").content.cloneNode(true).firstElementChild;
  turn.querySelector(".asked").textContent = text;
  turn.classList.toggle("behind", !!doc);
  $("log").append(turn);
  scrollToEnd();
  const asked = [...messages, {role: "user", content: text}], behind = doc;
  const whole = policy() === "full";
  const compare = turn.querySelector(".compare");
  const out = await write(turn, whole ? fullCache : `${policy()} at ${$("share").textContent}`, asked, doc ? {context: doc.name} : {...chosen(), kept: true});
  if (out.usage || out.text) messages = [...asked, {role: "assistant", content: out.text, ...(out.thoughts && {reasoning_content: out.thoughts})}];
  else $("message").value ||= text; // to be sent again
  if (!out.usage) return;
  const follow = atEnd();
  const u = out.usage, e = u.eviction;
  showKept(turn.querySelector(".kept"), e.kept_entries, u.prompt_tokens, `${memory(e)}; ${number(e.read_entries)} entries read a step; ` +
    `prompt in ${duration(e.prefill_ms)}, ${u.prompt_tokens_details.cached_tokens} of its tokens cached`);
  showTokens(turn.querySelector(".tokens"), e.tokens);
  if (follow) scrollToEnd();
  if (whole) return;
  compare.classList.add("ready");
  compare.addEventListener("click", async () => {
    const full = await write(turn, fullCache, behind ? unfolded(behind.text, asked) : asked, {policy: "full"});
    if (!full.usage) return;
    full.facts.textContent += `. ${difference(full.text, out.text)}`;
    compare.hidden = true;
    $("message").focus();
  });
}

// difference says how far two answers are the same.
function difference(full, evicted) {
  if (full === evicted) return "The same words.";
  const a = full.split(/\s+/), b = evicted.split(/\s+/);
  let same = 0;
  while (same < a.length && a[same] === b[same]) same++;
  return same ? `${same} of ${a.length} words are the same, then they differ.` : "Other words from the first on.";
}

// unfolded is a conversation whose first message begins with a document, as the server puts it there.
const unfolded = (text, [first, ...rest]) => [{...first, content: `${text}\n\n${first.content}`}, ...rest];

// give makes a text the document that questions are asked behind, in the place of another one. It returns whether it has become one.
async function give(title, text) {
  if (running || !model || !await takeAway()) return false;
  const view = $("document");
  view.classList.remove("ready");
  view.querySelector("h2").textContent = title;
  showAmount(view, "It waits for its turn.", 0, "progressbar");
  view.querySelector(".facts").textContent = "";
  view.hidden = false;
  view.scrollIntoView({block: "nearest"});
  $("settings").disabled = true; // what stands there is the document's from now on
  running = new AbortController();
  setBusy(true);
  say("The document is being compressed.");
  let made = null;
  try {
    for await (const part of events("/v1/contexts", {model, text, stream: true, ttl: 24 * 60 * 60, eviction: {...chosen(), kept: true}}, running.signal)) {
      if (part.object === "context") made = part;
      else showAmount(view, `${number(part.tokens_done)} of ${number(part.tokens)} tokens have run`, part.tokens_done / part.tokens, "progressbar");
    }
    doc = {name: made.name, text};
    showKept(view, made.kept_entries, made.tokens, `${number(made.tokens)} tokens in ${duration(made.prefill_ms)}; ${memory(made)}; its name is ${made.name}`);
    showTokens(view.querySelector(".tokens"), made.kept);
    view.querySelector("details").open = made.tokens <= 400;
    say("");
  } catch (e) {
    view.hidden = true;
    $("settings").disabled = false;
    const stopped = e.name === "AbortError";
    say(stopped ? "Stopped." : e.param === "eviction.policy" ? `A document wants another policy. ${e.message}.` : e.message, !stopped);
  } finally {
    running = null;
    setBusy(false);
  }
  $("message").focus();
  return !!doc;
}

// takeAway has the server forget the document. It returns whether there is none.
async function takeAway() {
  try {
    if (doc) await call(`/v1/contexts/${encodeURIComponent(doc.name)}`, null, null, "DELETE");
  } catch (e) {
    if (e.status !== 404) { // which is gone already
      say(e.message, true);
      return false;
    }
  }
  doc = null;
  $("document").hidden = true;
  $("settings").disabled = false;
  return true;
}

// giveFile makes a file the document.
async function giveFile(file) {
  if (running) return say("A document has to wait until the answer is there.", true);
  let text;
  try {
    text = new TextDecoder("utf-8", {fatal: true}).decode(await file.arrayBuffer());
  } catch (e) {
    return say(`${file.name} is not a text in UTF-8.`, true);
  }
  if (text.trim()) await give(file.name, text);
  else say(`${file.name} is empty.`, true);
}

const longText = 4000; // characters that are pasted as a document
const memory = e => `${bytes(e.kept_bytes)} of memory${e.full_bytes ? `, full ${bytes(e.full_bytes)}` : ""}`;

function showAmount(kept, text, share, role = "img") {
  const bar = kept.querySelector(".bar");
  kept.querySelector(".amount").textContent = text;
  bar.role = role;
  bar.ariaLabel = text;
  bar.ariaValueNow = role === "progressbar" ? Math.round(100 * share) : null;
  bar.firstElementChild.style.width = `${100 * share}%`;
}

function showKept(kept, entries, of, facts) {
  kept.classList.add("ready");
  showAmount(kept, `${number(entries)} of ${of} entries per head (${Math.round(100 * entries / of)}%)`, entries / of);
  kept.querySelector(".facts").textContent = facts;
}

// showTokens shows what was kept of every token.
function showTokens(tokens, kept) {
  if (!kept) {
    tokens.textContent = "The prompt is too long to be shown.";
    return;
  }
  tokens.tabIndex = 0; // to be scrolled by keys
  tokens.replaceChildren(...kept.map(([text, share], i) => {
    const span = document.createElement("span");
    span.textContent = text;
    span.className = `k${share > 0 ? Math.max(1, Math.floor(10 * share)) : 0}`;
    span.title = `token ${i}: kept by ${Math.round(100 * share)}% of the heads`;
    return span;
  }));
}

const number = x => x.toLocaleString("en", {maximumFractionDigits: x < 100 ? 1 : 0});
const duration = ms => ms < 1000 ? `${number(ms)} ms` : `${number(ms / 1000)} s`;

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${number(n)} ${units[i]}`;
}

// Who reads at the end of the page is kept there; who has scrolled up is not moved.
const page = document.documentElement;
const atEnd = () => page.scrollHeight - page.clientHeight - page.scrollTop < 40;
const scrollToEnd = () => page.scrollTo(0, page.scrollHeight);

$("composer").addEventListener("submit", e => { e.preventDefault(); send(); });
$("message").addEventListener("keydown", e => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); }
});
document.addEventListener("keydown", e => { if (e.key === "Escape") running?.abort(); });
$("stop").addEventListener("click", () => { running?.abort(); $("message").focus(); });
$("clear").addEventListener("click", () => {
  messages = [];
  $("log").replaceChildren();
  $("hint").hidden = false;
  say("");
  $("message").focus();
});
$("choose").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", async () => {
  const [file] = $("file").files;
  if (file) await giveFile(file);
  $("file").value = ""; // the same one may be chosen again
});
$("take-away").addEventListener("click", async () => {
  if (await takeAway()) say("The document is gone.");
  $("message").focus();
});
$("message").addEventListener("paste", async e => {
  const text = e.clipboardData.getData("text/plain");
  if (text.length < longText || running || !model) return;
  e.preventDefault();
  if (!await give("Pasted text", text)) $("message").setRangeText(text, $("message").selectionStart, $("message").selectionEnd, "end");
});
const over = e => e.dataTransfer?.types.includes("Files");
for (const type of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(type, e => {
    if (!over(e)) return;
    e.preventDefault(); // the browser would leave the page for the file
    document.body.classList.toggle("over", type === "dragover");
    if (type === "drop") giveFile(e.dataTransfer.files[0]);
  });
}
$("policy").addEventListener("change", () => {
  if (!$("policy").value) budget = ""; // all is the server's again
  showBudget();
  offerAdapters();
});
$("budget").addEventListener("input", () => { budget = `${$("budget").value}%`; showBudget(); });
$("login").addEventListener("submit", e => {
  e.preventDefault();
  sessionStorage.setItem(keyName, $("key").value.trim());
  $("key").value = "";
  start().then(() => { if ($("login").hidden) $("message").focus(); });
});
for (const part of $("turn-template").content.querySelectorAll(".tokens, .scale")) $("document").querySelector("details").append(part.cloneNode(true));
$("message").focus();
start();
