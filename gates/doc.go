// Package gates holds gates, an adapter kind that scores an entry when it is made: per layer a small map from what the attention
// reads, the hidden state through the norm before it, to the logarithm of the score that a label will give the entry in each KV
// head. No row is appended and no attention is observed, so that prompts cost one small product a layer more, and steps
// can be scored as well.
//
// A gate is linear or has one hidden layer (KVzap, Jeblick & Jégou 2026, arXiv:2601.07891), or compares queries and keys of low
// rank with learned sinks (Fast KVzip, Kim et al. 2026, arXiv:2601.17668). Files of all three are read (checkpoints.GateLayer). A
// [Fit] learns linear gates in closed form, and keeps the rows that package training goes on with to MLPs; gates of low rank are
// trained elsewhere.
package gates
