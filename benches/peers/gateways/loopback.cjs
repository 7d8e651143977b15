// Portkey's gateway has no option for its listening address. This file is loaded before it and restricts it to
// loopback.
const { Server } = require("node:net");

const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  const where = typeof port === "number" ? { port, host: "127.0.0.1" } : port;
  return listen.call(this, where, ...rest);
};
