// Before the first paint, so that nothing flashes. A switch overrides the system's wish.
"use strict";
(() => {
  const KEY = "tokengauge-theme";
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage can be forbidden
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
        // it lasts as long as the page
      }
      tell();
    });
  });
})();
