"use strict";
// The live page: events of the server fill the tables, and figures are drawn again when the server
// has a newer picture. All names come from members of the group: they are only ever set as text.
const live = {
  version: -1, shape: "", beginMs: 0, endS: 0, shown: null, isFetching: false, movesMax: 200,
  views: [],

  element: (id) => document.getElementById(id),

  listen() {
    const source = new EventSource("events");
    source.onmessage = (message) => live.take(JSON.parse(message.data));
    source.onopen = () => { live.lostAt = null; };
    source.onerror = () => {
      live.lostAt ??= new Date();
      live.say(`No connection to coopgroup watch since ${live.clock(live.lostAt)}. The page tries again.`);
      // The browser itself tries again, unless the answer was no stream of events.
      if (source.readyState === EventSource.CLOSED) setTimeout(live.listen, 2000);
    };
  },

  clock: (at) => at.toLocaleTimeString("en-GB"),

  say(text) {
    live.element("silence").hidden = !text;
    live.element("silence").firstElementChild.textContent = text;
  },

  take(event) {
    const {silence, trouble} = event;
    if (silence) live.say(`No answer about the group since ${silence.since}: ${silence.reason}`);
    else live.say(trouble ? `No telemetry: ${trouble}` : "");
    if (!event.cards) return;
    // The page was made before the first look at the group, with the columns of another kind.
    if (event.shared !== live.element("cards").dataset.shared) return location.reload();
    document.querySelector(".under").textContent = `as of ${event.at}`;
    live.cards(event.cards);
    for (const name of ["members", "partitions"]) live.fill(name, event[name], event.whole);
    live.moves(event.moves, event.whole);
    live.grow((event.at_ms - live.beginMs) / 1000);
    if (event.drawing !== live.version) live.fetch();
  },

  cards(rows) {
    const list = live.element("cards");
    if (list.children.length !== rows.length) {
      list.replaceChildren(...rows.map(() => {
        const card = document.createElement("div");
        card.append(document.createElement("dt"), document.createElement("dd"));
        return card;
      }));
    }
    rows.forEach(([label, text], place) => {
      const [term, value] = list.children[place].children;
      live.write(term, label);
      live.write(value, text);
    });
  },

  write(element, text) {
    if (element.textContent !== text) element.textContent = text;
  },

  row(classes) {
    const row = document.createElement("tr");
    row.append(...classes.map((name) => {
      const cell = document.createElement("td");
      if (name) cell.className = name;
      return cell;
    }));
    return row;
  },

  fill(name, {count, rows}, isWhole) {
    const table = live.element(name);
    const body = table.tBodies[0];
    if (isWhole) body.replaceChildren();
    while (body.rows.length > count) body.rows[body.rows.length - 1].remove();
    const classes = Array.from(table.tHead.rows[0].cells, (cell) => cell.className);
    for (const [y, cells] of rows) {
      while (body.rows.length <= y) body.append(live.row(classes));
      const row = body.rows[y];
      cells.forEach((text, x) => live.write(row.cells[x], text));
      row.classList.toggle("refused", name === "partitions" && cells[1] === "unowned");
    }
    live.filter(name);
  },

  filter(name) {
    const wanted = document.querySelector(`[data-table=${name}]`).value.toLowerCase();
    const rows = Array.from(live.element(name).tBodies[0].rows);
    let shown = 0;
    for (const row of rows) {
      row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
      shown += !row.hidden;
    }
    live.write(live.element(`${name}-count`), wanted ? `${shown} of ${rows.length}` : "");
  },

  moves(rows, isWhole) {
    const body = live.element("moves").tBodies[0];
    if (isWhole) body.replaceChildren();
    for (const cells of [...rows].reverse()) {
      const row = live.row(["", "why", ""]);
      cells.forEach((text, x) => { row.cells[x].textContent = text; });
      body.prepend(row);
    }
    while (body.rows.length > live.movesMax) body.rows[body.rows.length - 1].remove();
  },

  // --- figures ---

  async fetch() {
    if (live.isFetching) return;
    live.isFetching = true;
    try {
      const answer = await fetch(`drawing?shape=${encodeURIComponent(live.shape)}`);
      if (answer.ok) await live.draw(await answer.json());
    } catch {
      live.version = -1;  // the next event asks again
    } finally {
      live.isFetching = false;
    }
  },

  async draw(picture) {
    live.version = picture.version;
    live.element("charts").hidden = !picture.shape;
    if (!picture.shape) return;
    const seen = live.seen((picture.begin_ms - live.beginMs) / 1000);
    [live.beginMs, live.endS] = [picture.begin_ms, picture.end_s];
    if (picture.figures) await live.embed(picture.figures);
    else live.change(picture.changeable);
    live.shape = picture.shape;
    if (seen) page.look(seen.from ?? picture.end_s - seen.lengthS, seen.to ?? picture.end_s);
    live.legend(picture.legend);
    live.element("leader").innerHTML = picture.rounds;  // escaped by the server's template
    page.isDark = false;
    page.shade(dark.matches);
  },

  // The times that the reader looks at, on an axis that begins later; null for all times. The end
  // moves on if it is the present.
  seen(shiftS) {
    const time = live.shape && page.model("time");
    if (!time || (time.start <= time.bounds[0] && time.end >= time.bounds[1])) return null;
    if (time.end >= live.endS) return {lengthS: live.endS - time.start};
    return {from: time.start - shiftS, to: time.end - shiftS};
  },

  async embed({documents, item, divs}) {
    for (const view of live.views) for (const root of [...view.roots]) root.remove();
    Bokeh.documents.length = 0;
    live.element("figures").replaceChildren(...divs.map((id) => {
      const div = document.createElement("div");
      div.id = id;
      return div;
    }));
    live.views = await Bokeh.embed.embed_items(documents, [item]);
    const pressed = document.querySelector("[data-order][aria-pressed=true]");
    page.order(pressed.dataset.order);
  },

  change(models) {
    for (const [name, values] of Object.entries(models)) {
      const model = page.model(name);
      if (model) model.setv(values);
    }
    const pressed = document.querySelector("[data-order][aria-pressed=true]");
    page.order(pressed.dataset.order);
  },

  // Make the bars that reach the end of the picture longer, until the next picture.
  grow(nowS) {
    if (!live.shape || nowS <= live.endS) return;
    const [grownS, seen] = [nowS - live.endS, live.seen(0)];
    for (const name of live.growing) {
      const source = page.model(name);
      if (!source) continue;
      const {left, right} = source.data;
      let isChanged = false;
      source.data.right = Array.from(right, (end, place) => {
        if (end !== live.endS || left[place] === end) return end;
        isChanged = true;
        return nowS;
      });
      if (isChanged) source.change.emit();
    }
    const time = page.model("time");
    const bounds = [time.bounds[0], time.bounds[1] + grownS];
    if (seen === null) time.setv({bounds, end: bounds[1]});
    else if (seen.lengthS) time.setv({bounds, start: time.start + grownS, end: time.end + grownS});
    else time.setv({bounds});
    live.endS = nowS;
  },

  growing: [
    ...["by_owner", "by_name"].flatMap((order) => ["owned", "gaps", "restoring", "warm"].map((layer) =>
      `${order}_${layer}`)),
    "unowned_counts",
  ],

  legend({chips, more}) {
    const items = chips.map(([label, background, owner]) => {
      const chip = document.createElement(owner === null ? "span" : "button");
      if (owner !== null) {
        chip.dataset.owner = owner;
        chip.dataset.name = label;
        chip.setAttribute("aria-pressed", "false");
      }
      const colour = document.createElement("i");
      colour.style.background = background;
      chip.append(colour, label);
      return chip;
    });
    if (more) {
      const rest = document.createElement("span");
      rest.textContent = `and ${more} more`;
      items.push(rest);
    }
    live.element("legend").replaceChildren(...items.map((one) => {
      const place = document.createElement("li");
      place.append(one);
      return place;
    }));
    // The number of a member may be another one now.
    page.shown = null;
    const again = Array.from(document.querySelectorAll("[data-owner]"))
      .find((one) => one.dataset.name === live.shown);
    if (again) page.alone(Number(again.dataset.owner));
  },
};

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-owner]");
  if (button) live.shown = button.getAttribute("aria-pressed") === "true" ? button.dataset.name : null;
});
document.addEventListener("input", (event) => {
  if (event.target.dataset.table) live.filter(event.target.dataset.table);
});
live.listen();
