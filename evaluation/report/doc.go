// Package report shows the rows of an evaluation to people: as tables in plain text or Markdown
// ([WriteTable], [WriteMeasures]), as pictures of accuracy against budget ([PlotAccuracy]), of heat
// maps of needles ([PlotNeedle]) and of a sweep of adapters ([PlotSweep]), and as one document of
// whole runs: a page of HTML that needs no other file and no network, or Markdown. That has the scores
// with the best marked, charts of quality against budget and against cost, bars by task, heat maps,
// tests of differences, what was kept and what was answered. All figures are drawn by package
// figures.
//
// [New] computes everything from the runs' files, and [Report.WriteHTML] and
// [Report.WriteMarkdown] lay it out. Equal runs give equal bytes: nothing in a report is of the
// time or the machine it is made on, and resampling has a fixed seed. All text of the runs'
// files, answers above all, may come from anywhere: it is escaped, and the page forbids by its
// content security policy all scripts but its own, whose hash it names.
package report
