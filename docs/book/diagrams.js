// Draws what pages have as Mermaid, as GitHub does. Only such a page loads what draws.
(() => {
  const blocks = document.querySelectorAll("code.mermaid");
  if (blocks.length === 0) return;
  const script = document.createElement("script");
  script.src = `${path_to_root}mermaid.js`;
  script.onload = () => {
    const dark = ["ayu", "coal", "navy"].some((theme) => document.documentElement.classList.contains(theme));
    mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "neutral" });
    for (const code of blocks) {
      const drawn = document.createElement("div");
      drawn.className = "mermaid";
      drawn.textContent = code.textContent;
      code.closest("pre").replaceWith(drawn);
    }
    mermaid.run({ querySelector: ".mermaid" });
  };
  document.head.append(script);
})();
