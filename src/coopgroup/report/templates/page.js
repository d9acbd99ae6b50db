"use strict";
// What the page can do beyond Bokeh's own tools: another order of rows, one member alone, a round
// in close-up, dark mode. Models are found by their names.
const page = {
  model: (name) => Bokeh.documents.map((one) => one.get_model_by_name(name)).find(Boolean),

  order(chosen) {
    for (const rows of ["ownership", "warmups"].map(page.model).filter(Boolean)) {
      for (const bars of rows.renderers) {
        if (bars.tags.length) bars.visible = bars.tags.includes(chosen);
      }
      const labels = rows.tags[["by_owner", "by_name"].indexOf(chosen)];
      rows.left[0].major_label_overrides = new Map(labels.map((label, row) => [row, label]));
    }
    page.press("[data-order]", (button) => button.dataset.order === chosen);
  },

  alone(owner) {
    page.shown = page.shown === owner ? null : owner;
    for (const order of ["by_owner", "by_name"]) {
      for (const layer of ["owned", "restoring", "warm"]) {
        const source = page.model(`${order}_${layer}`);
        if (!source) continue;
        const {owner: owners, base} = source.data;
        source.data.alpha = Float32Array.from(owners, (one, place) =>
          (base ? base[place] : 1) * (page.shown === null || one === page.shown ? 1 : 0.13));
        source.change.emit();
      }
    }
    page.press("[data-owner]", (button) => Number(button.dataset.owner) === page.shown);
  },

  look(from, to) {
    const time = page.model("time");
    const [low, high] = time.bounds;
    time.setv({start: Math.max(low, from), end: Math.min(high, to)});
  },

  press(buttons, isPressed) {
    for (const button of document.querySelectorAll(buttons)) {
      button.setAttribute("aria-pressed", isPressed(button));
    }
  },

  // Colours of figures in dark mode: ink, faint ink, faults, grid, nobody, unknown, paper. A bar of
  // nobody stays black among the colours of members, and only its curve becomes light.
  shades: {"#2b313a": "#e4e8ef", "#7b8490": "#9aa5b4", "#c2001f": "#ff6b7e", "#e6e9ed": "#363e4a",
           "#15181c": "#c9d1dc", "#eceef1": "#39424f", "white": "#1f252e", "#ffffff": "#1f252f"},

  painted: /Figure|Axis|Grid|Legend|Title|Span|Quad|Line|Scatter|Text|Area|Segment|Rect/,

  shade(isDark) {
    if (page.isDark === isDark) return;
    page.isDark = isDark;
    const pairs = Object.entries(page.shades);
    const shades = new Map(isDark ? pairs : pairs.map(([light, dark]) => [dark, light]));
    for (const model of Bokeh.documents.flatMap((one) => [...one._all_models.values()])) {
      if (model.type === "ColumnDataSource") {
        const colours = model.data.colour;
        if (!colours || !colours.length) continue;
        const [from, to] = isDark ? ["#15181c", "#000000"] : ["#000000", "#15181c"];
        model.data.colour = Array.from(colours, (one) =>
          one === from ? to : shades.get(one) ?? one);
        model.change.emit();
        continue;
      }
      if (!page.painted.test(model.type)) continue;
      const changed = {};
      for (const {attr, is_unset} of model) {
        if (is_unset || !attr.endsWith("_color")) continue;
        const value = model[attr];
        const colour = typeof value === "string" ? value : value?.value;
        if (!shades.has(colour)) continue;
        const shade = shades.get(colour);
        changed[attr] = typeof value === "string" ? shade : {...value, value: shade};
      }
      if (Object.keys(changed).length) model.setv(changed);
    }
  },

  search(words) {
    const wanted = words.toLowerCase();
    for (const row of document.querySelectorAll("#rounds tbody tr")) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
    }
  },
};

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const {order, owner, at, whole} = button.dataset;
  if (order) page.order(order);
  if (owner) page.alone(Number(owner));
  if (whole !== undefined) page.look(-Infinity, Infinity);
  if (at) {
    const around = 0.02 * (page.model("time").bounds[1] - page.model("time").bounds[0]);
    page.look(Number(at) - around, Number(at) + 3 * around);
    document.getElementById("ownership").scrollIntoView({behavior: "smooth"});
  }
});
document.addEventListener("input", (event) => {
  if (event.target.id === "search") page.search(event.target.value);
});
const dark = matchMedia("(prefers-color-scheme: dark)");
const shadeWhenDrawn = () => {
  if (window.Bokeh === undefined) return;
  if (Bokeh.documents.length) page.shade(dark.matches);
  else requestAnimationFrame(shadeWhenDrawn);
};
page.isDark = false;
shadeWhenDrawn();
dark.addEventListener("change", shadeWhenDrawn);
