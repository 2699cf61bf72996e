// Keys, theme and lanes. All content is set as text; nothing is loaded from other hosts.

const find = (id) => document.getElementById(id);
const isTyping = (target) => target.closest("input, select, textarea, dialog") !== null;

/* theme: kept in a cookie, so that the server renders the next page in it */
{
  const root = document.documentElement;
  const button = find("theme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);
  const label = () => {
    button.textContent = isDark() ? "Light" : "Dark";
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    document.cookie = `theme=${root.dataset.theme}; SameSite=Strict; Path=/; Max-Age=31536000`;
    label();
  });
  systemDark.addEventListener("change", label);
  label();
}

/* keys */
{
  const help = find("help");
  const open = () => help.showModal();
  find("keys").hidden = false;
  find("keys").addEventListener("click", open);
  const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.checkVisibility());
  const move = (by) => {
    const all = rows();
    const at = all.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
    all[next]?.focus();
    all[next]?.scrollIntoView({ block: "nearest" });
  };
  const keys = {
    "/": () => {
      find("search").focus();
      find("search").select();
    },
    j: () => move(1),
    k: () => move(-1),
    n: () => location.assign("/"),
    l: () => location.assign("/lanes"),
    f: () => location.assign("/figures"),
    "?": open,
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && isTyping(event.target)) event.target.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    const key = keys[event.key];
    if (!key) return;
    event.preventDefault();
    key();
  });
}

/* forms: a second click submits nothing */
addEventListener("submit", ({ target: form }) => {
  if (form.method === "post") for (const button of form.querySelectorAll("button")) button.disabled = true;
});
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("form button")) button.disabled = false;
});

let localise;
/* times: in the viewer's zone; the tooltip keeps UTC */
{
  const format = new Intl.DateTimeFormat([], {
    year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
    hourCycle: "h23", timeZoneName: "short",
  });
  localise = (root) => {
    for (const time of root.querySelectorAll("time.at")) time.textContent = format.format(new Date(time.dateTime));
  };
  localise(document);
}

/* age: a page that is old, or that cannot refresh, says so in large */
const state = {
  readAt: Infinity, // the time of the data, by the browser's clock
  problem: null, // why the last refresh failed
  reason: "", // why the page does not refresh, if nothing failed
};
{
  const OLD = 90_000;
  const stale = find("stale");
  const UNITS = [[1000, "s"], [60_000, "min"], [3_600_000, "h"], [86_400_000, "d"]];
  const duration = (millis) => {
    const [length, name] = UNITS.findLast(([length]) => millis >= length * 1.5) ?? UNITS[0];
    return `${Math.max(0, Math.round(millis / length))} ${name}`;
  };
  state.show = () => {
    const age = Date.now() - state.readAt;
    const isOld = state.problem !== null || age > OLD;
    if (isOld && stale.hidden) find("announcements").textContent = state.problem ?? "This page is old.";
    stale.hidden = !isOld;
    if (!isOld) return;
    const old = Number.isFinite(age) ? `This page is ${duration(age)} old.` : "";
    stale.textContent = `${old} ${state.problem ?? state.reason}`.trim();
  };
  setInterval(state.show, 1000);
}
const UNANSWERED = "The console does not answer. Check that it still runs.";

/* refreshing: the page is read again and changed in place, while it is visible */
{
  const live = find("live");
  const page = live.dataset; // age, again: in milliseconds; without `again`, the page does not refresh
  let next = 0;
  let isBusy = false;
  let isLeaving = false;
  const isUsed = (node) => Boolean(node.querySelector?.("details[open] form"));
  const isSelected = () => !getSelection().isCollapsed && getSelection().containsNode(live, true);
  const keyOf = (node) => {
    if (node.nodeName === "TR") return node.querySelector("a[data-row]")?.getAttribute("href") ?? "";
    return node.id || node.dataset?.key || "";
  };
  // What stays is kept as it is, and with it focus, scrolling and what a person has opened.
  const change = (old, wanted) => {
    if (old.matches(".act") && isUsed(old)) return;
    for (const { name } of [...old.attributes]) if (name !== "open" && !wanted.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of wanted.attributes) if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    const keyed = new Map([...old.children].filter(keyOf).map((child) => [keyOf(child), child]));
    const stays = new Set([...wanted.children].map(keyOf));
    let at = old.firstChild;
    const drop = () => {
      const gone = at;
      at = at.nextSibling;
      if (!isUsed(gone)) gone.remove();
    };
    for (const child of [...wanted.childNodes]) {
      while (at && keyOf(at) && !stays.has(keyOf(at))) drop();
      const found = keyOf(child) ? keyed.get(keyOf(child)) : at;
      keyed.delete(keyOf(child));
      if (!found || found.nodeName !== child.nodeName || keyOf(found) !== keyOf(child)) {
        old.insertBefore(document.importNode(child, true), at);
        continue;
      }
      if (found === at) at = at.nextSibling;
      else old.insertBefore(found, at);
      if (found.nodeType === Node.ELEMENT_NODE) change(found, child);
      else if (found.data !== child.data) found.data = child.data;
    }
    while (at) drop();
  };
  const take = (read) => {
    const wanted = read.getElementById("live");
    localise(wanted);
    nameCells(wanted);
    const focused = document.activeElement;
    change(live, wanted);
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    document.title = read.title;
  };
  const dated = () => {
    state.readAt = page.age === undefined ? Infinity : Date.now() - Number(page.age);
  };
  const refresh = async () => {
    const path = location.pathname === "/" ? "" : location.pathname;
    const answer = await fetch(`/refresh${path}${location.search}`, { redirect: "manual", signal: AbortSignal.timeout(30_000) });
    if (answer.type === "opaqueredirect") return location.reload();
    next = Date.now() + Math.max(Number(page.again), 1000 * Number(answer.headers.get("retry-after") ?? 0));
    const text = await answer.text();
    if (isLeaving || answer.status === 204) return null;
    const read = new DOMParser().parseFromString(text, "text/html");
    if (!answer.ok) return `It cannot be refreshed: ${read.querySelector("h1")?.textContent ?? answer.status}.`;
    take(read);
    dated();
    return null;
  };
  const tick = async () => {
    if (page.again === undefined || isBusy || isLeaving || document.hidden || Date.now() < next) return;
    state.reason = isSelected() ? "It refreshes once no text in it is selected." : "The console reads 20 read units a second at most.";
    if (isSelected()) return;
    isBusy = true;
    const problem = await refresh().catch(() => UNANSWERED);
    if (problem === UNANSWERED) next = Date.now() + Number(page.again);
    isBusy = false;
    if (!isLeaving) state.problem = problem ?? null;
    state.show();
  };
  addEventListener("submit", ({ target: form }) => {
    isLeaving = form.method === "post";
  });
  addEventListener("pagehide", () => {
    isLeaving = true;
  });
  addEventListener("pageshow", () => {
    isLeaving = false;
  });
  document.addEventListener("visibilitychange", () => {
    state.show();
    tick();
  });
  dated();
  next = Date.now() + Number(page.again);
  if (page.again === undefined) state.reason = "It does not refresh by itself.";
  setInterval(tick, 250);
}

/* differences: closed on small screens */
if (innerWidth <= 760) document.querySelector(".difference")?.removeAttribute("open");

/* tables: on small screens, cells carry their column's name */
function nameCells(root) {
  for (const table of root.querySelectorAll("table.rows")) {
    const heads = [...table.querySelectorAll("th")].map((head) => head.textContent);
    for (const row of table.tBodies[0]?.rows ?? []) {
      [...row.cells].forEach((cell, at) => {
        if (cell.classList.contains("n") && heads[at] && heads[at] !== "#") cell.dataset.label = heads[at];
      });
    }
  }
}
nameCells(document);

/* lanes */
const lanes = find("lanes");
if (lanes) {
  // The most bars and signs drawn of a lane, so that a page with 200 lanes stays fast.
  const BARS = 10;
  const SIGNS = 4;
  const ANNOUNCED = { P: "parked", B: "blocked" };

  const known = new Map(); // key -> { lane, row, open, drawn }
  let order = [];
  let stream;
  let clock = 0; // server time minus browser time
  let base = 0; // origin of bar positions, so that numbers stay small
  let follows = true;
  let end = 0; // the right end of the axis while paused
  let pixels = 1; // per millisecond
  let isFirst = true;
  const zoom = find("window");
  const now = () => Date.now() + clock;
  const length = () => Number(zoom.value) * 1000;
  const right = () => (follows ? now() : end);

  const make = (name, parent, className) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    parent?.append(element);
    return element;
  };

  const row = ({ key, label }) => {
    const item = make("li", null, "lane");
    const name = make("div", item, "name");
    const link = make("a", name);
    link.href = `/order?key=${encodeURIComponent(key)}`;
    link.dataset.row = "";
    link.title = label;
    make("bdi", link).textContent = label;
    const badge = make("span", name, "badge");
    const track = make("div", item, "track");
    track.setAttribute("role", "img");
    return { item, badge, track, belt: make("div", track, "belt") };
  };

  // As in lists: the last four digits of a sequence.
  const position = (sequence) => `#${sequence < 10_000 ? sequence : String(sequence % 10_000).padStart(4, "0")}`;

  // The least width of a bar, in pixels, for a name.
  const NAMED = 40;
  const label = (bar, name, millis) => {
    bar.textContent = millis * pixels < NAMED ? "" : name;
  };

  // Draws only what is visible.
  const draw = (entry) => {
    const { lane, row } = entry;
    const [from, to] = [right() - length(), right() + length() / 4];
    const isAlsoParked = lane.is_parked && lane.state !== "parked";
    const more = isAlsoParked ? " · parked" : lane.waiting > 1 ? ` · ${lane.waiting}` : "";
    row.badge.textContent = lane.state + more;
    row.badge.title = `${lane.waiting} waiting`;
    row.badge.className = `badge ${lane.tone}`;
    row.belt.replaceChildren();
    entry.open = [];
    const isSeen = (begins, ends) => begins <= to && (ends ?? Infinity) >= from;
    let waits = 0;
    for (const [sequence, kind, begins, ends, name] of lane.spans.filter((span) => isSeen(span[2], span[3])).slice(-BARS)) {
      const bar = make("a", row.belt, `bar ${kind}`);
      bar.href = `/delivery?key=${encodeURIComponent(lane.key)}&sequence=${sequence}`;
      bar.tabIndex = -1;
      label(bar, name, (ends ?? now()) - begins);
      const took = ends === null ? "" : `, ${Math.round(ends - begins)} ms`;
      const topic = name.startsWith("#") ? "" : ` ${name}`;
      bar.title = `${position(sequence)}${topic}: ${kind}${took}; sequence ${sequence}`;
      bar.setAttribute("aria-label", bar.title);
      bar.style.setProperty("--a", begins - base);
      bar.style.setProperty("--b", (ends ?? now()) - base);
      // A sign covers the end of its bar.
      if (bar.textContent && lane.marks.some((mark) => mark[1] === ends)) bar.classList.add("signed");
      if (kind === "waiting") bar.style.setProperty("--row", waits++ % 3);
      if (ends === null) entry.open.push({ bar, name, begins });
    }
    for (const [sign, at, name, tone] of lane.marks.filter((mark) => isSeen(mark[1], mark[1])).slice(-SIGNS)) {
      const mark = make("b", row.belt, `sign ${tone}`);
      mark.textContent = sign;
      mark.title = name;
      mark.style.setProperty("--a", at - base);
    }
    const count = new Set(lane.spans.map((span) => span[0])).size;
    row.track.setAttribute("aria-label", `${count} ${count === 1 ? "delivery" : "deliveries"}, ${lane.state}`);
  };

  const drawAll = () => known.forEach(draw);

  const place = () => {
    const width = lanes.querySelector(".track")?.clientWidth || lanes.clientWidth || 1;
    pixels = width / length();
    lanes.style.setProperty("--px", pixels);
  };

  const ticks = () => {
    const [to, span] = [right(), length()];
    const parts = innerWidth < 760 ? 3 : 6;
    const time = (at, zone) => new Date(at).toLocaleTimeString([], {
      hourCycle: "h23", hour: "2-digit", minute: "2-digit", second: span < 600_000 ? "2-digit" : undefined,
      timeZoneName: zone ? "short" : undefined,
    });
    const all = [...Array(parts + 1).keys()].map((part) => {
      const tick = document.createElement("span");
      const zone = part === 0;
      tick.textContent = part === parts && follows ? "now" : time(to - span * (1 - part / parts), zone);
      tick.style.left = `${(100 * part) / parts}%`;
      return tick;
    });
    find("ticks").replaceChildren(...all);
  };

  const shift = () => {
    lanes.style.setProperty("--shift", (base - (right() - length())) * pixels);
    if (!follows) return;
    const until = now() - base;
    for (const entry of known.values()) for (const { bar } of entry.open) bar.style.setProperty("--b", until);
  };

  const update = (news) => {
    state.problem = news.problem === undefined ? null : `The tables do not answer: ${news.problem}.`;
    if (state.problem === null) state.readAt = Date.now();
    state.show();
    if (state.problem !== null) return;
    clock = news.now - Date.now();
    base ||= news.now;
    if (news.order) {
      order = news.order;
      const kept = new Set(order);
      for (const [key, entry] of known) {
        if (!kept.has(key)) {
          entry.row.item.remove();
          known.delete(key);
        }
      }
    }
    const announcements = [];
    for (const lane of news.lanes) {
      const entry = known.get(lane.key) ?? { row: row(lane), open: [] };
      const before = entry.lane?.state;
      entry.lane = lane;
      known.set(lane.key, entry);
      if (!isFirst && before !== lane.state && Object.values(ANNOUNCED).includes(lane.state)) announcements.push(`${lane.label}: ${lane.state}`);
      if (follows || before === undefined) draw(entry);
    }
    if (news.order) {
      // Moves only lanes that are out of place.
      let next = lanes.firstElementChild;
      for (const key of order) {
        const item = known.get(key)?.row.item;
        if (!item) continue;
        if (item === next) next = next.nextElementSibling;
        else lanes.insertBefore(item, next);
      }
    }
    if (announcements.length > 0) find("announcements").textContent = announcements.slice(-3).join(". ");
    isFirst = false;
    const more = news.matching - order.length;
    find("how-many").textContent = more > 0 ? `${order.length} lanes, and ${more} more` : `${order.length} ${order.length === 1 ? "lane" : "lanes"}`;
    find("empty").hidden = order.length > 0;
    find("empty").textContent = find("filter").value ? "No lane has this text in its order, source, topic or state." : "Waiting for the first order…";
    if (news.price) find("price").textContent = news.price;
    const before = pixels;
    place();
    if (pixels !== before) drawAll();
    ticks();
    shift();
  };

  const connect = () => {
    stream?.close();
    if (document.hidden) return;
    stream = new EventSource(`/live?filter=${encodeURIComponent(find("filter").value.trim())}`);
    stream.onmessage = (event) => update(JSON.parse(event.data));
    // A new connection sends the whole page again.
    stream.onerror = () => {
      state.problem = UNANSWERED;
      state.show();
    };
  };
  const listen = () => {
    known.clear();
    order = [];
    lanes.replaceChildren();
    connect();
  };
  document.addEventListener("visibilitychange", connect);

  const follow = (does) => {
    if (!does && follows) end = now();
    follows = does;
    find("follow").setAttribute("aria-pressed", String(does));
    find("follow").textContent = does ? "Pause" : "Follow";
    redraw();
  };
  const redraw = () => {
    place();
    drawAll();
    ticks();
    shift();
  };
  const pan = (by) => {
    follow(false);
    end += (by * length()) / 2;
    if (end >= now()) follow(true);
    else redraw();
  };
  const step = (by) => {
    const at = zoom.selectedIndex + by;
    if (at < 0 || at >= zoom.options.length) return;
    zoom.selectedIndex = at;
    redraw();
  };

  let typed;
  find("filter").addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(listen, 150);
  });
  zoom.addEventListener("change", redraw);
  find("follow").addEventListener("click", () => follow(!follows));
  find("back").addEventListener("click", () => pan(-1));
  find("on").addEventListener("click", () => pan(1));
  addEventListener("resize", redraw);
  const keys = { " ": () => follow(!follows), "+": () => step(-1), "-": () => step(1), "−": () => step(1), ArrowLeft: () => pan(-1), ArrowRight: () => pan(1) };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.target.closest("button") && event.key === " ") return;
    const key = keys[event.key];
    if (!key) return;
    event.preventDefault();
    key();
  });
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let last = 0;
  let ticked = 0;
  const frame = (at) => {
    requestAnimationFrame(frame);
    // Skips frames in which nothing moves by a pixel.
    if (!follows || at - last < Math.max(still.matches ? 1000 : 30, 1 / pixels)) return;
    last = at;
    shift();
    if (at - ticked > 1000) {
      ticked = at;
      ticks();
      for (const entry of known.values()) for (const { bar, name, begins } of entry.open) label(bar, name, now() - begins);
    }
  };
  requestAnimationFrame(frame);
  state.reason = "The console reads 20 read units a second at most.";
  listen();
}
