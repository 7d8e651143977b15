// Runs before the first paint, so that the page does not flash. The switch overrides the system setting.
"use strict";
(() => {
  const KEY = "tokengauge-theme";
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // the browser may forbid storage
    }
  };
  const chosen = stored();
  root.dataset.theme = ["light", "dark"].includes(chosen) ? chosen : "auto";
  const tell = () => document.dispatchEvent(new Event("theme"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  document.addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("theme");
    if (!select) return;
    select.value = root.dataset.theme;
    select.addEventListener("change", () => {
      root.dataset.theme = select.value;
      try {
        localStorage.setItem(KEY, select.value);
      } catch {
        // the choice is kept until the page is closed
      }
      tell();
    });
  });
})();
