// One page.js of page.tsx and Grafana's components.
import { build } from 'esbuild';

await build({
  entryPoints: ['page.tsx'],
  outfile: 'page.js',
  bundle: true,
  minify: true,
  format: 'iife',
  jsx: 'automatic',
  logLevel: 'error',
  mainFields: ['browser', 'module', 'main'],
  conditions: ['browser', 'import', 'module'],
  external: ['stream'],
  define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
  loader: { '.svg': 'dataurl', '.png': 'dataurl', '.woff2': 'dataurl', '.ttf': 'dataurl' },
});
