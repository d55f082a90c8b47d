// Light, dark, or the system's theme: selected by a button, stored in this browser.
const broadloomTheme = {
  choices: ["auto", "light", "dark"],
  names: { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" },
  get() {
    const kept = localStorage.getItem("broadloom-theme");
    return this.choices.includes(kept) ? kept : "auto";
  },
  apply() {
    const choice = this.get();
    if (window.Quasar) Quasar.Dark.set(choice === "auto" ? "auto" : choice === "dark");
    const button = document.getElementById("bl-theme");
    if (button) button.firstElementChild.textContent = this.names[choice];
    return Boolean(window.Quasar && button);
  },
  next() {
    const place = this.choices.indexOf(this.get());
    localStorage.setItem("broadloom-theme", this.choices[(place + 1) % this.choices.length]);
    this.apply();
  },
};
// The page is built after this file is loaded, so try until it exists.
const broadloomThemeTimer = setInterval(() => broadloomTheme.apply() && clearInterval(broadloomThemeTimer), 30);
