// Checks the names of options in JavaScript, as TypeScript's types do.

/** Names each option of `T`. */
export type Names<T> = Record<keyof Required<T>, true>;

/** Returns why `given` is not an object of these options, if it is not. */
export function misnamed<T>(given: unknown, names: Names<T>): string | undefined {
  const known = Object.keys(names);
  if (typeof given !== "object" || given === null) return `${given} is not an object with the options ${known.join(", ")}`;
  const unknown = Object.keys(given).find((name) => !known.includes(name));
  if (unknown === undefined) return undefined;
  const near = known.filter((name) => distance(unknown, name) <= 2);
  const advice = near.length > 0 ? `did you mean ${near.join(" or ")}?` : `the options are ${known.join(", ")}`;
  return `"${unknown}" is not an option: ${advice}`;
}

/** Returns how many letters must be inserted, deleted or replaced to turn one name into the other. */
function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, column) => column);
  for (const [index, letter] of [...one.toLowerCase()].entries()) {
    const next = [index + 1];
    for (const [column, match] of [...other.toLowerCase()].entries()) {
      next.push(Math.min(row[column]! + Number(letter !== match), row[column + 1]! + 1, next[column]! + 1));
    }
    row = next;
  }
  return row[other.length]!;
}
