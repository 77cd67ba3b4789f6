"use strict";
// Draws one run. All text of the run goes through textContent or fillText, never through markup.
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const make = (tag, text, cls) => {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};
const T = Float64Array.from(data.events.t), N = Int16Array.from(data.events.n), K = Uint16Array.from(data.events.k);
const X = data.events.x, KINDS = data.events.kinds, END = Math.max(data.end, T.length ? T[T.length - 1] : 1);
const GUTTER = 118, AXIS = 24;
const BASIC = new Set(["request", "outcome", "fault", "life", "ready", "phase"]);
// A row for each family of events: faults on top, then life, then a service's own by the first part of their name.
const rowOf = KINDS.map((k) => (k === "request" || k === "outcome" ? "requests" : k === "fault" ? "fault" : BASIC.has(k) || !k.includes(".") ? "life" : k.split(".")[0]));
const ORDER = (row) => (row === "fault" ? 0 : row === "life" ? 1 : row === "requests" ? 3 : 2);
const HUES = [205, 160, 280, 35, 330, 185, 95, 250, 60, 305];
const state = { a: 0, b: END, nodes: new Set(data.nodes.map((_, i) => i).concat([-1])),
  kinds: new Set(KINDS.map((_, i) => i)), selected: -1, request: -1, query: "", hits: [], hit: -1 };
let css = {}, lanes = [], width = 0, height = 0, ratio = 1, drawn = 0;

const kindColor = (k) => {
  const name = KINDS[k];
  if (name === "fault") return css.warn;
  if (name === "life" || name === "phase") return css.accent;
  if (name === "ready") return css.ok;
  return `hsl(${HUES[k % HUES.length]} 55% ${css.dark ? 66 : 42}%)`;
};
const outcomeColor = (o) => (o === "200" ? css.ok : o === "unknown" || o === "none" ? css.bad : css.warn);
const time = (us) => (us / 1e6).toFixed(6) + " s";

function readColors() {
  const s = getComputedStyle(document.documentElement);
  for (const k of ["bg", "panel", "ink", "soft", "line", "lane", "ok", "bad", "warn", "accent", "down", "band", "msg", "mark", "probe"])
    css[k] = s.getPropertyValue("--" + k).trim();
  const set = document.documentElement.dataset.theme;
  css.dark = set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// Requests of a lane are packed into rows, so that those under way at once lie below each other.
const packed = new Map();
for (const r of data.requests) {
  const lane = packed.get(r.n) || { ends: [], rows: 0 };
  const until = r.e === null ? END : r.e;
  let row = lane.ends.findIndex((e) => e <= r.t);
  if (row < 0) row = lane.ends.length < 10 ? lane.ends.length : lane.ends.indexOf(Math.min(...lane.ends));
  lane.ends[row] = until;
  r.row = row;
  packed.set(r.n, lane);
}
const depthsOf = (n) => data.depths.filter((d) => d.n === n);

function layout() {
  lanes = [];
  let y = AXIS;
  for (const n of [-1, ...data.nodes.map((_, i) => i)]) {
    if (!state.nodes.has(n)) continue;
    const rows = rowsOf.get(n) || [];
    if (n === -1 && !rows.length) continue;
    const lane = { n, y, name: n < 0 ? "world" : data.nodes[n], rows: {}, depths: depthsOf(n) };
    let at = y + (data.faults.some((f) => f.n === n) ? 20 : 8);
    if (rows.includes("fault")) lane.rows.fault = y + 11;
    if (n >= 0 && data.ready.some((r) => r[0] === n)) { lane.ready = at; at += 9; }
    for (const r of rows) if (ORDER(r) === 1 || ORDER(r) === 2) { lane.rows[r] = at + 8; at += 16; }
    const pack = packed.get(n);
    if (pack || rows.includes("requests")) { at += 4; lane.req = at; lane.rows.requests = at + 4; at += (pack ? pack.ends.length : 1) * 8 + 6; }
    for (const d of lane.depths) { d.y = at + 2; at += 30; }
    lane.h = Math.max(at + 6 - y, 34);
    y += lane.h + 26;
    lanes.push(lane);
  }
  // What room there is goes between the lanes, where messages are drawn.
  const first = lanes.length && lanes[0].n < 0 ? 1 : 0, gaps = Math.max(1, lanes.length - 1 - first);
  const room = ($("lanes").clientHeight || 400) - y;
  const extra = Math.max(0, Math.min(160, Math.floor(room / gaps)));
  lanes.forEach((lane, i) => shift(lane, Math.max(0, i - first) * extra));
  height = (lanes.length ? lanes[lanes.length - 1].y + lanes[lanes.length - 1].h : y) + 8;
}
function shift(lane, by) {
  lane.y += by;
  for (const r in lane.rows) lane.rows[r] += by;
  if (lane.ready !== undefined) lane.ready += by;
  if (lane.req !== undefined) lane.req += by;
  for (const d of lane.depths) d.y += by;
}
const rowsOf = new Map();
{
  const seen = new Set();
  for (let i = 0; i < N.length; i++) {
    const key = N[i] * 65536 + K[i]; if (seen.has(key)) continue;
    seen.add(key);
    const rows = rowsOf.get(N[i]) || []; if (!rows.includes(rowOf[K[i]])) rows.push(rowOf[K[i]]);
    rowsOf.set(N[i], rows.sort((a, b) => ORDER(a) - ORDER(b) || (a < b ? -1 : 1)));
  }
}
const laneOf = (n) => lanes.find((l) => l.n === n);
const px = (t) => GUTTER + ((t - state.a) / (state.b - state.a)) * (width - GUTTER - 10);
const at = (x) => state.a + ((x - GUTTER) / (width - GUTTER - 10)) * (state.b - state.a);
const lower = (t) => { let lo = 0, hi = T.length; while (lo < hi) { const m = (lo + hi) >> 1; if (T[m] < t) lo = m + 1; else hi = m; } return lo; };
const shown = (i) => state.nodes.has(N[i]) && state.kinds.has(K[i]);

function size(canvas, h) {
  ratio = window.devicePixelRatio || 1;
  width = canvas.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(h * ratio);
  canvas.style.height = h + "px";
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.font = '12px system-ui, "Segoe UI", "Liberation Sans", sans-serif';
  c.textBaseline = "middle";
  return c;
}

function draw() {
  layout();
  const c = size($("view"), Math.max(height, $("lanes").clientHeight || 0));
  c.fillStyle = css.bg; c.fillRect(0, 0, width, c.canvas.height / ratio);
  for (const lane of lanes) { c.fillStyle = css.lane; c.fillRect(GUTTER, lane.y, width - GUTTER - 10, lane.h); }
  c.save(); c.beginPath(); c.rect(GUTTER, 0, width - GUTTER - 10, c.canvas.height / ratio); c.clip();
  drawDown(c); drawFaults(c); drawGrid(c);
  drawMessages(c);
  for (const lane of lanes) { drawReady(c, lane); for (const d of lane.depths) drawDepth(c, d); }
  drawRequests(c); drawEvents(c); drawFaultNames(c); drawMarks(c);
  c.restore();
  drawLabels(c); drawMap();
}
function drawGrid(c) {
  const span = state.b - state.a, raw = span / Math.max(2, (width - GUTTER) / 110), mag = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * mag).find((s) => s >= raw);
  const digits = Math.max(0, Math.min(6, Math.ceil(6 - Math.log10(step) - 1e-9)));
  c.strokeStyle = css.line; c.fillStyle = css.soft; c.lineWidth = 1; c.textAlign = "center";
  for (let t = Math.ceil(state.a / step) * step; t <= state.b; t += step) {
    const x = Math.round(px(t)) + 0.5;
    c.beginPath(); c.moveTo(x, AXIS - 4); c.lineTo(x, height); c.stroke();
    c.fillText((t / 1e6).toFixed(digits) + " s", x, 10);
  }
  c.textAlign = "left";
}
function drawDown(c) {
  for (const [n, from, to] of data.down) {
    const lane = laneOf(n); if (!lane || to < state.a || from > state.b) continue;
    const x = Math.max(px(from), GUTTER), w = Math.max(px(to) - x, 1);
    c.fillStyle = css.down; c.fillRect(x, lane.y, w, lane.h);
    if (w > 60) { c.fillStyle = css.soft; c.fillText("no process", x + 6, lane.y + lane.h - 10); }
  }
}
function drawFaults(c) {
  for (const f of data.faults) {
    const lane = laneOf(f.n); if (!lane || f.e < state.a || f.t > state.b) continue;
    const x = px(f.t), w = Math.max(px(f.e) - x, 2);
    c.fillStyle = `rgb(${css.band} / .22)`; c.fillRect(x, lane.y, w, lane.h);
    c.fillStyle = `rgb(${css.band} / .9)`; c.fillRect(x, lane.y, w, 3);
  }
}
// A fault's name stands beside its strike, as far as the next strike leaves room.
function drawFaultNames(c) {
  for (const lane of lanes) {
    const own = data.faults.filter((f) => f.n === lane.n && f.e >= state.a && f.t <= state.b);
    own.forEach((f, i) => {
      const x = Math.max(px(f.t), GUTTER) + 9, until = i + 1 < own.length ? px(own[i + 1].t) - 8 : width;
      if (until - x < 34) return;
      const text = fitText(c, f.x, until - x);
      c.lineJoin = "round"; c.lineWidth = 4; c.strokeStyle = css.lane; c.strokeText(text, x, lane.y + 12);
      c.lineWidth = 1; c.fillStyle = css.warn; c.fillText(text, x, lane.y + 12);
    });
  }
}
function drawReady(c, lane) {
  if (lane.ready === undefined) return;
  const changes = data.ready.filter((r) => r[0] === lane.n);
  changes.forEach((r, i) => {
    const to = i + 1 < changes.length ? changes[i + 1][1] : END;
    if (to < state.a || r[1] > state.b) return;
    c.fillStyle = r[2] ? css.ok : css.bad; c.globalAlpha = r[2] ? 0.75 : 0.9;
    const x = Math.max(px(r[1]), GUTTER - 2); c.fillRect(x, lane.ready, Math.max(px(to) - x, 1), 5); c.globalAlpha = 1;
  });
}
function drawDepth(c, d) {
  const h = 22, top = Math.max(d.cap || 0, 1), y = (v) => d.y + h - Math.min(v / top, 1.2) * (h - 2);
  c.strokeStyle = css.line; c.beginPath(); c.moveTo(GUTTER, d.y + h + 0.5); c.lineTo(width, d.y + h + 0.5); c.stroke();
  c.beginPath(); c.moveTo(GUTTER, y(0));
  let last = 0;
  for (const [t, v] of d.points) {
    if (t > state.b) break;
    if (t >= state.a) { const x = px(t); c.lineTo(x, y(last)); c.lineTo(x, y(v)); }
    else { c.lineTo(GUTTER, y(v)); }
    last = v;
  }
  c.lineTo(px(state.b), y(last)); c.lineTo(px(state.b), y(0)); c.closePath();
  c.fillStyle = `rgb(${css.msg} / .28)`; c.fill(); c.strokeStyle = `rgb(${css.msg} / .9)`; c.stroke();
}
// Arcs; where many fall on one pixel, one is drawn for all, and the more there are the fainter they are.
function drawMessages(c) {
  const seen = new Map();
  for (const m of data.messages) {
    const [from, to, sent, arrives, , kind] = m;
    const end = arrives < 0 ? sent : arrives;
    if (end < state.a || sent > state.b) continue;
    const a = laneOf(from), b = laneOf(to); if (!a || !b || a === b) continue;
    const x0 = px(sent), x1 = arrives < 0 ? x0 + 14 : px(arrives);
    const key = `${from},${to},${kind},${Math.round(x0 / 2)},${Math.round(x1 / 2)}`;
    if (!seen.has(key)) seen.set(key, [a, b, x0, x1, kind, arrives < 0]);
  }
  const faint = Math.max(0.12, Math.min(1, 500 / Math.max(1, seen.size)));
  for (const [a, b, x0, x1, kind, lost] of seen.values()) {
    const down = a.y < b.y, y0 = down ? a.y + a.h - 2 : a.y + 2;
    let y1 = down ? b.y + 2 : b.y + b.h - 2;
    if (lost) y1 = y0 + (down ? 14 : -14);
    c.strokeStyle = kind === "reset" || lost ? css.bad : `rgb(${css.msg} / ${(kind === "data" ? 0.6 : 0.3) * faint})`;
    c.lineWidth = kind === "reset" ? 1.6 : 1; c.setLineDash(lost ? [2, 3] : []);
    const bend = (y1 - y0) * 0.5;
    c.beginPath(); c.moveTo(x0, y0); c.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1); c.stroke();
  }
  c.setLineDash([]); c.lineWidth = 1;
}
function drawRequests(c) {
  const request = KINDS.indexOf("request"), on = request < 0 || state.kinds.has(request);
  if (!on) return;
  const cells = new Set();
  for (let i = 0; i < data.requests.length; i++) {
    const r = data.requests[i], until = r.e === null ? END : r.e;
    if (until < state.a || r.t > state.b) continue;
    const lane = laneOf(r.n); if (!lane) continue;
    const x = px(r.t), w = Math.max(px(until) - x, 1.5);
    if (i !== state.request && w < 2) { const cell = r.row * 1e6 + Math.round(x); if (cells.has(cell)) continue; cells.add(cell); }
    const y = lane.req + r.row * 8;
    c.fillStyle = outcomeColor(r.outcome); c.globalAlpha = i === state.request ? 1 : 0.7;
    c.fillRect(x, y, w, 5); c.globalAlpha = 1;
    if (i === state.request) {
      c.strokeStyle = css.ink; c.lineWidth = 1.5; c.strokeRect(x - 2, y - 2, w + 4, 9); c.lineWidth = 1;
      const target = r.to === null ? null : laneOf(r.to);
      if (target) {
        const y1 = target.y + target.h / 2, mid = px((r.t + until) / 2);
        c.strokeStyle = css.ink; c.setLineDash([4, 3]); c.beginPath();
        c.moveTo(x, y); c.quadraticCurveTo(x, y1, mid, y1); c.quadraticCurveTo(x + w, y1, x + w, y); c.stroke(); c.setLineDash([]);
      }
    }
  }
}
function drawEvents(c) {
  drawn = 0;
  const last = new Map(), hits = state.query ? new Set(state.hits) : null;
  for (let i = lower(state.a); i < T.length && T[i] <= state.b; i++) {
    if (!shown(i)) continue;
    const row = rowOf[K[i]];
    if (row === "requests" && !(hits && hits.has(i))) { drawn++; continue; }
    const lane = laneOf(N[i]); if (!lane) continue;
    const x = px(T[i]), hit = hits && hits.has(i), key = lane.n * 1e4 + K[i];
    drawn++;
    if (!hit && x - (last.get(key) ?? -9) < 1.2) continue;
    last.set(key, x);
    c.globalAlpha = hits && !hit ? 0.15 : 1;
    dot(c, x, lane.rows[row], K[i], hit, X[i]);
  }
  c.globalAlpha = 1;
  if (state.selected >= 0 && shown(state.selected)) {
    const lane = laneOf(N[state.selected]), x = px(T[state.selected]);
    if (lane) {
      c.strokeStyle = css.ink; c.lineWidth = 2; c.beginPath(); c.arc(x, lane.rows[rowOf[K[state.selected]]], 8, 0, 7); c.stroke(); c.lineWidth = 1;
    }
  }
}
function dot(c, x, y, k, hit, text) {
  c.fillStyle = kindColor(k);
  const name = KINDS[k];
  if (name === "fault" && text.startsWith("healed")) { c.fillRect(x - 1, y - 5, 2, 9); }
  else if (name === "fault") { c.beginPath(); c.moveTo(x, y - 5); c.lineTo(x + 5, y + 4); c.lineTo(x - 5, y + 4); c.fill(); }
  else if (name === "life" || name === "phase") { c.save(); c.translate(x, y); c.rotate(Math.PI / 4); c.fillRect(-4, -4, 8, 8); c.restore(); }
  else { c.beginPath(); c.arc(x, y, hit ? 5 : 3, 0, 7); c.fill(); }
  if (hit) { c.strokeStyle = css.ink; c.beginPath(); c.arc(x, y, 6, 0, 7); c.stroke(); }
}
function drawMarks(c) {
  const line = (t, text, color, dash, y) => {
    if (t < state.a || t > state.b) return;
    const x = Math.round(px(t)) + 0.5;
    c.strokeStyle = color; c.lineWidth = 1.5; c.setLineDash(dash);
    c.beginPath(); c.moveTo(x, AXIS - 6); c.lineTo(x, height); c.stroke(); c.setLineDash([]); c.lineWidth = 1;
    const w = c.measureText(text).width + 12, left = x + w > width - 10 ? x - w : x;
    c.fillStyle = color; c.fillRect(left, y, w, 18); c.fillStyle = css.bg; c.fillText(text, left + 6, y + 9.5);
  };
  if (data.parts && data.parts.event < T.length) line(T[data.parts.event], "parts from the passing run", css.accent, [5, 4], AXIS + 18);
  if (data.verdict) line(data.verdict.at, data.verdict.oracle, css.bad, [], AXIS - 4);
}
function drawLabels(c) {
  for (const lane of lanes) {
    c.fillStyle = css.ink; c.textAlign = "right"; c.font = '600 12px system-ui, "Liberation Sans", sans-serif';
    c.fillText(fitText(c, lane.name, GUTTER - 20), GUTTER - 10, lane.y + 13);
    c.font = '11px system-ui, "Liberation Sans", sans-serif'; c.fillStyle = css.soft;
    for (const d of lane.depths) c.fillText(fitText(c, `${d.queue} ≤ ${d.cap}`, GUTTER - 20), GUTTER - 10, d.y + 13);
    for (const r in lane.rows) {
      if (r === "requests" ? lane.req < lane.y + 22 : ORDER(r) !== 2) continue;
      if (lane.rows[r] > lane.y + 20) c.fillText(fitText(c, r, GUTTER - 20), GUTTER - 10, lane.rows[r] + (r === "requests" ? 2 : 0));
    }
    c.textAlign = "left"; c.font = '12px system-ui, "Liberation Sans", sans-serif';
  }
}
function fitText(c, text, room) {
  if (c.measureText(text).width <= room) return text;
  while (text.length > 1 && c.measureText(text + "…").width > room) text = text.slice(0, -1);
  return text + "…";
}
// The whole run, with the part that is shown.
let density = null;
function drawMap() {
  const c = size($("map"), 36), w = width - GUTTER - 10;
  if (!density || density.length !== Math.max(1, w | 0)) {
    density = new Uint32Array(Math.max(1, w | 0));
    for (let i = 0; i < T.length; i++) density[Math.min(density.length - 1, Math.floor((T[i] / END) * density.length))]++;
  }
  c.fillStyle = css.panel; c.fillRect(0, 0, width, 36);
  const top = density.reduce((m, v) => Math.max(m, v), 1), x = (t) => GUTTER + (t / END) * w;
  for (const f of data.faults) { c.fillStyle = `rgb(${css.band} / .35)`; c.fillRect(x(f.t), 0, Math.max(x(f.e) - x(f.t), 2), 36); }
  c.fillStyle = `rgb(${css.msg} / .65)`;
  for (let i = 0; i < density.length; i++) { const h = Math.sqrt(density[i] / top) * 30; c.fillRect(GUTTER + i, 34 - h, 1, h); }
  if (data.verdict) { c.fillStyle = css.bad; c.fillRect(x(data.verdict.at) - 1, 0, 2, 36); }
  c.fillStyle = css.dark ? "rgb(0 0 0 / .45)" : "rgb(120 130 140 / .22)";
  c.fillRect(GUTTER, 0, x(state.a) - GUTTER, 36); c.fillRect(x(state.b), 0, x(END) - x(state.b), 36);
  c.strokeStyle = css.accent; c.strokeRect(x(state.a) + 0.5, 0.5, Math.max(x(state.b) - x(state.a) - 1, 2), 35);
  c.fillStyle = css.soft; c.textAlign = "right"; c.font = '11px system-ui, "Liberation Sans", sans-serif';
  c.fillText("whole run", GUTTER - 10, 18); c.textAlign = "left";
  width = $("view").clientWidth;
}

let asked = false;
const redraw = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; draw(); }); } };
function show(a, b) {
  const span = Math.min(Math.max(b - a, 20), END * 1.02), lo = -END * 0.01, hi = END * 1.01;
  if (a < lo) { a = lo; } if (a + span > hi) { a = Math.max(lo, hi - span); }
  state.a = a; state.b = a + span; redraw();
}
const zoom = (by, x) => { const t = at(x ?? (GUTTER + width) / 2); show(t - (t - state.a) * by, t + (state.b - t) * by); };
const pan = (share) => { const d = (state.b - state.a) * share; show(state.a + d, state.b + d); };
const center = (t, span) => { const s = span ?? Math.min(state.b - state.a, END / 8); show(t - s / 2, t + s / 2); };

function details(rows, title) {
  const box = $("details"); box.replaceChildren(make("h2", title));
  const list = make("dl");
  for (const [name, value] of rows) { list.append(make("dt", name), make("dd", value)); }
  box.append(list);
}
function select(i, move) {
  state.selected = i; state.request = -1;
  if (i < 0) return redraw();
  details([["number", `${i + 1} of ${T.length}`], ["time", time(T[i])], ["node", N[i] < 0 ? "world" : data.nodes[N[i]]],
    ["kind", KINDS[K[i]]], ["event", X[i]]], "Event");
  const number = /^(?:->|<-) #(\d+)/.exec(X[i]);
  if (number && rowOf[K[i]] === "requests") state.request = data.requests.findIndex((r) => r.id === Number(number[1]));
  if (move && (T[i] < state.a || T[i] > state.b)) center(T[i], state.b - state.a);
  redraw();
}
function selectRequest(i) {
  const r = data.requests[i]; state.request = i; state.selected = -1;
  details([["request", `#${r.id} ${r.op} ${r.key}`], ["from", data.nodes[r.n]], ["to", r.to === null ? "not known" : data.nodes[r.to]],
    ["sent", time(r.t)], ["ended", r.e === null ? "never" : time(r.e)], ["took", r.e === null ? "–" : ((r.e - r.t) / 1000).toFixed(3) + " ms"],
    ["outcome", r.outcome]], "Request");
  redraw();
}
function pick(x, y) {
  let best = -1, near = 9;
  for (let i = lower(at(x - 8)); i < T.length && T[i] <= at(x + 8); i++) {
    if (!shown(i) || rowOf[K[i]] === "requests") continue;
    const lane = laneOf(N[i]); if (!lane) continue;
    const d = Math.hypot(px(T[i]) - x, lane.rows[rowOf[K[i]]] - y);
    if (d < near) { near = d; best = i; }
  }
  if (best >= 0) return select(best);
  let found = -1;
  data.requests.forEach((r, i) => {
    const lane = laneOf(r.n); if (!lane || lane.req === undefined) return;
    const ry = lane.req + r.row * 8, x1 = px(r.e === null ? END : r.e);
    if (y >= ry - 2 && y <= ry + 7 && x >= px(r.t) - 3 && x <= Math.max(x1, px(r.t) + 2) + 3) found = i;
  });
  if (found >= 0) return selectRequest(found);
  const band = data.faults.find((f) => { const l = laneOf(f.n); return l && y >= l.y && y <= l.y + l.h && x >= px(f.t) - 2 && x <= px(f.e) + 2; });
  if (band) details([["fault", band.x], ["node", data.nodes[band.n]], ["from", time(band.t)], ["to", time(band.e)]], "Fault");
}
function step(by) {
  let i = state.selected < 0 ? (by > 0 ? lower(state.a) - 1 : lower(state.b)) : state.selected;
  do { i += by; } while (i >= 0 && i < T.length && !shown(i));
  if (i >= 0 && i < T.length) select(i, true);
}
function search(text) {
  state.query = text.trim().toLowerCase(); state.hits = []; state.hit = -1;
  if (state.query) for (let i = 0; i < X.length; i++) {
    if (shown(i) && (X[i].toLowerCase().includes(state.query) || KINDS[K[i]].includes(state.query))) state.hits.push(i);
  }
  $("hits").textContent = state.query ? `${state.hits.length} found` : ""; redraw();
}
function nextHit(by) {
  if (!state.hits.length) return;
  state.hit = (state.hit + by + state.hits.length) % state.hits.length;
  $("hits").textContent = `${state.hit + 1} of ${state.hits.length}`;
  select(state.hits[state.hit], true);
}

function chrome() {
  document.title = data.title; $("title").textContent = data.title; $("replay").textContent = data.replay;
  const v = $("verdict"), bad = data.verdict;
  v.className = bad ? "bad" : "ok";
  v.textContent = bad ? `${bad.oracle} at ${(bad.at / 1e6).toFixed(3)} s: ${bad.why}` : `passes · ${T.length.toLocaleString("en")} events`;
  $("toverdict").disabled = !bad; $("toparts").disabled = !data.parts;
  if (data.report) { $("why").hidden = false; $("report").textContent = data.report; }
  for (const n of [...data.nodes.keys(), -1]) {
    const b = make("button", n < 0 ? "world" : data.nodes[n]); b.setAttribute("aria-pressed", "true");
    b.onclick = () => { const on = state.nodes.has(n); on ? state.nodes.delete(n) : state.nodes.add(n); b.setAttribute("aria-pressed", String(!on)); search($("search").value); };
    $("nodes").append(b);
  }
  const counts = new Uint32Array(KINDS.length); K.forEach((k) => counts[k]++);
  KINDS.forEach((name, k) => {
    const label = make("label"), box = make("input"); box.type = "checkbox"; box.checked = true;
    box.onchange = () => { box.checked ? state.kinds.add(k) : state.kinds.delete(k); search($("search").value); };
    const swatch = make("span", undefined, "swatch"); swatch.dataset.kind = k;
    label.append(box, swatch, make("span", name), make("span", counts[k].toLocaleString("en"), "count"));
    $("kinds").append(label);
  });
  for (const [color, text, box] of [["ok", "ready; request answered 200", 1], ["bad", "not ready; outcome unknown; reset", 1], ["warn", "request refused or failed", 1],
    ["band", "fault", 1], ["down", "no process", 1], ["msg", "messages; queue depth", 1], ["accent", "starts, stops, phases"]]) {
    const li = make("li"), s = make("span", undefined, box ? "swatch box" : "swatch"); s.dataset.color = color; li.append(s, make("span", text)); $("legend").append(li);
  }
}
function paintSwatches() {
  document.querySelectorAll("[data-kind]").forEach((s) => { s.style.background = kindColor(Number(s.dataset.kind)); });
  document.querySelectorAll("[data-color]").forEach((s) => { const v = css[s.dataset.color]; s.style.background = v.startsWith("#") ? v : `rgb(${v})`; });
}
function listen() {
  const view = $("view"); let drag = null;
  view.onpointerdown = (e) => { drag = { x: e.offsetX, y: e.offsetY, a: state.a, b: state.b, moved: false }; view.setPointerCapture(e.pointerId); };
  view.onpointermove = (e) => {
    if (!drag) return;
    const d = e.offsetX - drag.x; if (Math.abs(d) > 3) { drag.moved = true; view.classList.add("drag"); }
    if (drag.moved) { const t = (-d / (width - GUTTER - 10)) * (drag.b - drag.a); show(drag.a + t, drag.b + t); }
  };
  view.onpointerup = (e) => { if (drag && !drag.moved) pick(e.offsetX, e.offsetY); drag = null; view.classList.remove("drag"); };
  view.addEventListener("wheel", (e) => {
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) pan((e.deltaX || e.deltaY) / 800);
    else zoom(Math.exp(e.deltaY / 400), e.offsetX);
    e.preventDefault();
  }, { passive: false });
  const map = $("map"), jump = (e) => center(((e.offsetX - GUTTER) / (map.clientWidth - GUTTER - 10)) * END, state.b - state.a >= END ? END / 8 : state.b - state.a);
  map.onpointerdown = (e) => { map.setPointerCapture(e.pointerId); jump(e); };
  map.onpointermove = (e) => { if (e.buttons) jump(e); };
  const toVerdict = () => data.verdict && center(data.verdict.at);
  const toParts = () => { if (data.parts && data.parts.event < T.length) { center(T[data.parts.event]); select(data.parts.event); } };
  $("toverdict").onclick = toVerdict; $("toparts").onclick = toParts;
  $("zoomin").onclick = () => zoom(0.5); $("zoomout").onclick = () => zoom(2); $("fit").onclick = () => show(0, END);
  $("theme").onclick = () => { document.documentElement.dataset.theme = css.dark ? "light" : "dark"; readColors(); paintSwatches(); redraw(); };
  $("search").oninput = (e) => search(e.target.value);
  const keys = { ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6),
    0: () => show(0, END), n: () => step(1), p: () => step(-1), v: toVerdict, g: toParts, Home: () => center(0), End: () => center(END) };
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.target === $("search")) {
      if (e.key === "Enter") { nextHit(e.shiftKey ? -1 : 1); e.preventDefault(); }
      if (e.key === "Escape") { e.target.value = ""; search(""); $("view").focus(); }
      return;
    }
    if (e.key === "/") { $("search").focus(); e.preventDefault(); return; }
    if (e.key === "Escape") { select(-1); $("kindbox").open = false; return; }
    if (e.target.matches("input, select, textarea")) return;
    if (keys[e.key]) { keys[e.key](); e.preventDefault(); }
  });
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); paintSwatches(); redraw(); });
}
// Says what it found and how long a full picture takes, for whoever looks without eyes.
function selfCheck() {
  const begin = performance.now(); draw();
  document.body.dataset.check = `ok nodes=${data.nodes.length} events=${T.length} shown=${drawn} messages=${data.messages.length} requests=${data.requests.length} faults=${data.faults.length} verdict=${data.verdict ? data.verdict.oracle : "none"}`;
  document.body.dataset.drawMs = (performance.now() - begin).toFixed(1);
}
readColors(); chrome(); paintSwatches(); listen();
const wanted = new URLSearchParams(location.hash.slice(1));
if (wanted.get("theme")) { document.documentElement.dataset.theme = wanted.get("theme"); readColors(); paintSwatches(); }
show(-END * 0.01, END * 1.01); selfCheck();
if (wanted.get("from")) show(Number(wanted.get("from")) * 1e6, Number(wanted.get("to")) * 1e6);
if (wanted.get("event")) select(Number(wanted.get("event")) - 1, true);
if (wanted.get("search")) { $("search").value = wanted.get("search"); search(wanted.get("search")); }
})();
