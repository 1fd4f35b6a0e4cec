package main

// page is the template of the page; it needs nothing from elsewhere.
const page = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.App}} runs</title>
<style>
  :root { color-scheme: light dark; --ink: #16202a; --soft: #5d6b78; --line: #dde3e8; --paper: #f5f7f9; --card: #fff; --go: #1b8a5a }
  @media (prefers-color-scheme: dark) {
    :root { --ink: #e8edf1; --soft: #97a5b1; --line: #2c3843; --paper: #10171d; --card: #18222b; --go: #4cc38a }
  }
  body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
  main { box-sizing: border-box; width: min(30rem, 92vw); padding: 2rem; background: var(--card); border: 1px solid var(--line); border-radius: 12px }
  h1 { margin: 0; font-size: 1.6rem; line-height: 1.2; overflow-wrap: anywhere }
  h1::before { content: ""; display: inline-block; width: .6em; height: .6em; margin-right: .5em; border-radius: 50%; background: var(--go) }
  p { margin: .6rem 0 1.4rem; color: var(--soft) }
  dl { display: grid; grid-template-columns: auto 1fr; gap: .5rem 1.5rem; margin: 0; padding-top: 1.2rem; border-top: 1px solid var(--line) }
  dt { color: var(--soft) }
  dd { margin: 0; font-family: ui-monospace, monospace; font-size: .95em; overflow-wrap: anywhere }
</style>
<main>
  <h1>{{.App}} runs</h1>
  <p>Nobody connected to this machine to start it. Its agent called the server, and was told what to run.</p>
  <dl>
  {{- range .Facts}}
    <dt>{{.Name}}</dt><dd>{{.Value}}</dd>
  {{- end}}
  </dl>
</main>
</html>
`
