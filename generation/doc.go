// Package generate makes the responses that adapters are trained on: prompts in,
// the model's own responses out as token ids (LookaheadKV, arXiv:2603.10899, §4.1; Judge Q, arXiv:2509.10798,
// app. A.1). [Stored] lets workers anywhere fill the shards of one folder of a bucket.
package generation
