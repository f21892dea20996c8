// Refuses every host but `localhost`, as many dev servers do: the tunnel has to present that name.
const strictHost = {
  name: "strict-host",
  configureServer(server) {
    server.middlewares.use((request, response, next) => {
      if (!/^localhost(:\d+)?$/.test(request.headers.host ?? "")) {
        response.statusCode = 403;
        response.end(`host ${request.headers.host} is not allowed`);
      } else if (request.url === "/seen") {
        response.setHeader("content-type", "application/json");
        response.end(JSON.stringify(request.headers));
      } else next();
    });
  },
};

export default { plugins: [strictHost], clearScreen: false, server: { host: "127.0.0.1", strictPort: true }, cacheDir: ".vite-cache" };
