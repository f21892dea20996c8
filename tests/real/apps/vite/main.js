import { message } from "./message.js";
import "./style.css";

const show = (text) => (document.querySelector("#message").textContent = text);
show(message);
import.meta.hot.accept("./message.js", (fresh) => show(fresh.message));
