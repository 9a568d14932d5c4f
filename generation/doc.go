// Package generate makes the responses that adapters are trained on: prompts in,
// the model's own responses out as token ids (lookaheadkv.txt §4.1; judgeq.txt
// app. A.1). [Stored] lets workers anywhere fill the shards of one folder of a bucket.
package generation
