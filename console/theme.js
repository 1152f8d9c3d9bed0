// Sets theme and language before the first paint. A classic script: modules run after it.
(function () {
  var root = document.documentElement;
  try {
    var settings = JSON.parse(localStorage.getItem('switchboard.settings') || '{}');
    if (settings.theme === 'light' || settings.theme === 'dark') root.dataset.theme = settings.theme;
    var language = settings.language || (/^zh\b/i.test(navigator.language) ? 'zh' : 'en');
    root.lang = language === 'zh' ? 'zh-Hans' : 'en';
  } catch {
    // Storage is blocked: the system's theme applies.
  }
})();
