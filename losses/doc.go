// Package losses holds the two objectives that adapters are trained with: the KL
// divergence of LookaheadKV and the squared error of Judge Q. Both compare, per
// layer and query head, the scores of the learned rows with the attention that
// the model's own response pays to the prompt.
package losses
