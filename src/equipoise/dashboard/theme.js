{
  const names = {'': 'Theme: system', dark: 'Theme: dark', light: 'Theme: light'};
  const themes = Object.keys(names);
  const root = document.documentElement, button = () => document.querySelector('[data-theme-button]');
  let theme = '';
  try { theme = localStorage.getItem('equipoise-theme') || '' } catch { /* then it is the system's */ }
  const wear = () => {
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    if (button()) button().textContent = names[theme];
  };
  document.addEventListener('click', (event) => {
    if (!event.target.closest('[data-theme-button]')) return;
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem('equipoise-theme', theme) } catch { /* then it holds until the next page */ }
    wear();
  });
  wear();
  const waiting = new MutationObserver(() => { if (button()) { waiting.disconnect(); wear() } });
  waiting.observe(root, {childList: true, subtree: true});
}
