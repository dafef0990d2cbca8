// Numbers as people read them, each with its unit.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function count(value) {
  if (value === null || value === undefined) return "unknown";
  if (Math.abs(value) < 1e5) return whole.format(Math.round(value));
  if (Math.abs(value) < 1e6) return `${(value / 1e3).toFixed(0)} k`;
  if (Math.abs(value) < 1e9) return `${(value / 1e6).toFixed(2)} M`;
  return `${(value / 1e9).toFixed(2)} G`;
}

export function share(value, digits = 1) {
  if (value === null || value === undefined) return "unknown";
  return `${(100 * value).toFixed(digits)} %`;
}

export function dollars(value) {
  if (value === null || value === undefined) return "unknown";
  const sign = value < 0 ? "-" : "";
  const size = Math.abs(value);
  if (size === 0) return "$0";
  if (size < 0.01) return `${sign}$${size.toPrecision(2)}`;
  if (size < 1000) return `${sign}$${size.toFixed(2)}`;
  return `${sign}$${whole.format(size)}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "unknown";
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (size < 1) return `${Number((value * 1e3).toPrecision(3))} ms`;
  if (size < 120) return `${Number(value.toPrecision(3))} s`;
  return duration(value);
}

export function duration(value) {
  const total = Math.round(Math.abs(value));
  const [days, hours, minutes] = [total / 86400, (total % 86400) / 3600, (total % 3600) / 60].map(Math.floor);
  const two = (large, small) => (small[0] ? `${large} ${small.join(" ")}` : large);
  if (days) return two(`${days} d`, [hours, "h"]);
  if (hours) return two(`${hours} h`, [minutes, "min"]);
  if (minutes) return two(`${minutes} min`, [total % 60, "s"]);
  return `${total} s`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "unknown";
  let size = value;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1024 || unit === "GiB") return `${unit === "B" ? size : size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
  return "";
}

export function clock(unix, withSeconds = false) {
  const at = new Date(unix * 1000);
  const parts = [at.getHours(), at.getMinutes(), ...(withSeconds ? [at.getSeconds()] : [])];
  return parts.map((part) => String(part).padStart(2, "0")).join(":");
}

export function moment(unix) {
  const at = new Date(unix * 1000);
  const date = [at.getFullYear(), at.getMonth() + 1, at.getDate()];
  return `${date.map((part) => String(part).padStart(2, "0")).join("-")} ${clock(unix, true)}`;
}

export function ago(unix, now = Date.now() / 1000) {
  const past = Math.max(0, now - unix);
  return past < 1.5 ? "now" : `${duration(past)} ago`;
}
