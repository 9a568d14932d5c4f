package quantized

import (
	"encoding/json"

	"glimpse/kernels"
)

// mxfp4 is what gpt-oss is published in: experts in blocks, which checkpoints.Weights.SplitExperts widens of any folder.
type mxfp4 struct{}

func init() { methods.Add("mxfp4", func(json.RawMessage) (scheme, error) { return mxfp4{}, nil }) }

func (mxfp4) find(*finder) {}

func (mxfp4) stored(int) kernels.DType { return kernels.BF16 }
