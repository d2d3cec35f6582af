/* What people look for stands in pages for users; histories, code and lists come later. */
const LATER = /^(CHANGELOG|ARCHITECTURE|CONTRIBUTING|SECURITY|benchmarks|grafana|docs\/(proofs|index|commands))/;
const FIRST = /^docs\/questions/;

var Scorer = {
  score: ([docname, title, anchor, descr, score]) =>
    score + (FIRST.test(docname) ? 6 : 0) - (LATER.test(docname) ? 12 : 0),
  objNameMatch: 20,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
