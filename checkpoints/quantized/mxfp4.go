package quantized

import (
	"encoding/json"
	"strings"

	"glimpse/checkpoints"
	"glimpse/kernels"
)

// mxfp4 is what gpt-oss is published in: experts in blocks, which checkpoints.Weights.SplitExperts finds in any folder.
type mxfp4 struct{}

func init() { methods.Add("mxfp4", func(json.RawMessage) (scheme, error) { return mxfp4{}, nil }) }

func (mxfp4) find(*finder) {}

func (mxfp4) stored(name string, cols int) kernels.DType {
	if !strings.Contains(name, ".experts.") || cols%blockCols != 0 {
		return kernels.BF16
	}
	return checkpoints.Kept(checkpoints.MXFP4)
}
