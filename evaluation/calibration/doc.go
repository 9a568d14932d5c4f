// Package calibration finds the smallest budget that keeps a promise: on prompts like those that were measured, the
// expected loss against the full cache is at most ε, with a confidence.
//
// The predictions of an evaluation are the measurements ([Measure]). A budget of a policy is certified where the losses refute that
// their mean is ε or more, by betting (package confidence). Every policy's budgets are tested from the largest down, and the first that
// is not certified ends it: tests in a fixed order need no correction for their number (Learn then Test, arXiv:2110.01052,
// fixed sequence testing). Policies are corrected for by Bonferroni: each has an equal part of 1 − confidence.
//
// What is independent are documents, not prompts ([Documents]). Losses of prompts that share a document are averaged, and count once.
package calibration
