import { defineConfig } from "vite";

// The program serves what this builds: the page at `/`, everything else at `/assets/`, named by its content. Nothing is inlined, as the
// page's policy allows no `data:` but pictures.
export default defineConfig({
  base: "/",
  publicDir: false,
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    emptyOutDir: true,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1000,
  },
  server: {
    // `npm run dev` beside `nvmirage dashboard --address 127.0.0.1:9601`, with its token
    proxy: { "/v1": { target: process.env["NVMIRAGE"] ?? "http://127.0.0.1:9601", changeOrigin: true } },
  },
});
