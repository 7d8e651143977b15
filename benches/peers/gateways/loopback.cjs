// Portkey's gateway has no option for the address it listens on: loaded before it, this keeps it off the network.
const { Server } = require("node:net");

const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  const where = typeof port === "number" ? { port, host: "127.0.0.1" } : port;
  return listen.call(this, where, ...rest);
};
