"use strict";
// Sorting and copying for those who have scripts; the page reads the same without.
for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => {
        const cell = row.cells[Math.min(column, row.cells.length - 1)]; // a gap spans all metrics
        const text = cell.textContent.trim();
        const number = cell.dataset.value !== undefined ? Number(cell.dataset.value) : Number(text || NaN);
        return { gap: cell.classList.contains("gap"), number, text };
      };
      const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
      rows.sort(([a], [b]) => {
        if (a.gap !== b.gap) return a.gap ? 1 : -1; // what was not measured comes last either way
        const order = Number.isNaN(a.number) || Number.isNaN(b.number) ? a.text.localeCompare(b.text, "en", { numeric: true }) : a.number - b.number;
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });
}
if (navigator.clipboard) {
  for (const command of document.querySelectorAll(".command")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", () => {
      navigator.clipboard.writeText(command.querySelector("code").textContent).then(
        () => { button.textContent = "Copied"; },
        () => { button.textContent = "Select it by hand"; },
      );
    });
    command.append(button);
  }
}
