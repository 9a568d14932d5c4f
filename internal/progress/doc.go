// Package progress tells people how far a long loop has come.
//
// A [Bar] counts units (steps, prompts, bytes) and writes to stderr, so that
// results on stdout stay clean. On a terminal it is one line that is redrawn at
// most ten times a second:
//
//	[=========>          ]  412/1000 steps  41%  3.4 steps/s  2m53s left  loss 0.312
//
// Anywhere else (a file, a pipe, a CI log) the same facts come as log lines, one for
// each tenth of the loop, and one after 10 seconds without:
//
//	412/1000 steps  41%  3.4 steps/s  2m53s left  loss 0.312
//
// Both come from the same formatting, and units that an earlier, interrupted run
// has done count as done but not towards the rate ([Bar.Skip]).
//
//	bar := progress.New(os.Stderr, "steps", total)
//	defer bar.Done()
//	bar.Skip(resumedAt)
//	for step := resumedAt; step < total; step++ {
//		loss := trainStep()
//		bar.Describe(fmt.Sprintf("loss %.3f", loss))
//		bar.Add(1)
//	}
package progress
