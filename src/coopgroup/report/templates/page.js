"use strict";
// What the page can do beyond Bokeh's own tools: another order of rows, one member alone, a round
// in close-up. Models are found by their names.
const page = {
  model: (name) => Bokeh.documents.map((one) => one.get_model_by_name(name)).find(Boolean),

  order(chosen) {
    for (const rows of ["ownership", "warmups"].map(page.model).filter(Boolean)) {
      for (const bars of rows.renderers) {
        if (bars.tags.length) bars.visible = bars.tags.includes(chosen);
      }
      rows.left[0].formatter = rows.tags[["by_owner", "by_name"].indexOf(chosen)];
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
