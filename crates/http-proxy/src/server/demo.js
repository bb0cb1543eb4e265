// The demo page's script: asks the browser's own cache for each part of the page as it came, and
// shows what the caches on its way said of it.
addEventListener('load', async () => {
  const parts = performance.getEntriesByType('resource').map((part) => part.name);
  for (const url of [location.href, ...parts]) {
    // From the browser's cache, however old: nothing is asked for again only to be shown.
    const answer = await fetch(url, { cache: 'force-cache' });
    const shown = [
      new URL(url).pathname,
      answer.headers.get('cache-status') ?? 'none',
      answer.headers.get('age') ?? '',
    ];
    const row = document.querySelector('tbody').insertRow();
    for (const text of shown) row.insertCell().textContent = text;
  }
});
