"use strict";
(function () {
  const root = document.documentElement;
  const all = function (selector, within) {
    return Array.from((within || document).querySelectorAll(selector));
  };

  // Light or dark: as the system says until the button is pressed.
  const theme = document.getElementById("theme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  theme.hidden = false;
  theme.addEventListener("click", function () {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
  });

  // A target that is picked stays bright, all others fade.
  let picked = null;
  const show = function (target) {
    all("[data-t]").forEach(function (part) {
      part.classList.toggle("faded", target !== null ? part.dataset.t !== target : false);
    });
  };
  const picks = all("[data-pick]");
  picks.forEach(function (button) {
    const target = button.dataset.pick;
    button.addEventListener("click", function () {
      picked = picked === target ? null : target;
      picks.forEach(function (other) {
        other.setAttribute("aria-pressed", String(other.dataset.pick === picked));
      });
      show(picked);
    });
    button.addEventListener("pointerenter", function () { show(target); });
    button.addEventListener("pointerleave", function () { show(picked); });
  });

  // Figures under the pointer of a line chart.
  const digits = function (value) {
    return value === 0 ? "0" : value.toPrecision(3).replace(/\.?0+$/, "");
  };
  const scaled = function (value, units) {
    let index = 0;
    while (Math.max(value, 999.5) === value ? index + 1 !== units.length : false) {
      value /= 1000;
      index += 1;
    }
    return (value >= 99.5 ? String(Math.round(value)) : digits(value)) + units[index];
  };
  const axis = function (text) {
    const parts = text.split(" ");
    const low = Number(parts[1]);
    const high = Number(parts[2]);
    return parts[0] === "log"
      ? function (place) { return low * Math.pow(high / low, place); }
      : function (place) { return low + (high - low) * place; };
  };
  const points = function (path) {
    return path.getAttribute("d").split(/[ML]/).slice(1).map(function (pair) {
      return pair.split(",").map(Number);
    });
  };
  const at = function (line, x) {
    const after = line.findIndex(function (point) { return point[0] >= x; });
    if (after === -1) { return null; }
    const b = line[after];
    if (after === 0) { return b[0] - x > 15 ? null : b[1]; }
    const a = line[after - 1];
    return a[1] + (b[1] - a[1]) * (x - a[0]) / (b[0] - a[0] || 1);
  };
  all(".lines").forEach(function (plot) {
    const inner = plot.querySelector(".paths");
    const size = inner.viewBox.baseVal;
    const isLatency = inner.dataset.y.startsWith("log");
    const x = axis(inner.dataset.x);
    const y = axis(inner.dataset.y);
    const lines = all("path", inner).map(function (path) {
      return { name: path.dataset.name, colour: path.classList[1], points: points(path) };
    });
    const rule = document.createElement("i");
    const box = document.createElement("div");
    rule.className = "rule";
    box.className = "readout";
    rule.hidden = box.hidden = true;
    plot.append(rule, box);
    plot.addEventListener("pointerleave", function () { rule.hidden = box.hidden = true; });
    plot.addEventListener("pointermove", function (event) {
      const frame = plot.firstElementChild.getBoundingClientRect();
      const part = (event.clientX - frame.left) / frame.width;
      const found = lines.map(function (line) {
        return { line: line, y: at(line.points, part * size.width) };
      }).filter(function (entry) { return entry.y !== null; });
      rule.hidden = box.hidden = Math.abs(part - 0.5) > 0.5 ? true : found.length === 0;
      if (box.hidden) { return; }
      found.sort(function (a, b) { return a.y - b.y; });
      const head = document.createElement("b");
      head.textContent = isLatency
        ? (100 * (1 - Math.pow(10, -x(part)))).toPrecision(6).replace(/\.?0+$/, "") + " %"
        : digits(x(part)) + " s";
      box.replaceChildren(head);
      found.forEach(function (entry) {
        const row = document.createElement("span");
        const swatch = document.createElement("i");
        const value = y(1 - entry.y / size.height);
        swatch.className = entry.line.colour;
        row.append(swatch, entry.line.name + " ", isLatency
          ? scaled(value, [" µs", " ms", " s"]) : scaled(value, ["/s", " k/s", " M/s", " G/s"]));
        box.append(row);
      });
      const left = frame.left - plot.getBoundingClientRect().left + part * frame.width;
      rule.style.left = left + "px";
      box.style.left = left + "px";
      box.classList.toggle("before", part > 0.5);
    });
  });
})();
