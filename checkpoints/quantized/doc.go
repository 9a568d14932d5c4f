// Package quantized opens Hugging Face checkpoints whose config.json has a quantization_config.
//
// What such a checkpoint stores of a linear layer X is codes of 4 or 8 bits, scales, perhaps zero
// points, and an order of columns. Show puts X.weight in the place of these, in blocks or in bf16,
// so that whoever reads the weights sees the tensors of an ordinary model:
//
//	c, err := quantized.Parse(raw) // of config.json
//	if err != nil {
//		return err
//	}
//	if err := c.Show(weights); err != nil {
//		return err
//	}
//	q, err := weights.Tensor("model.layers.0.self_attn.q_proj.weight")
//
// # Numbers
//
// A weight is (code − zero point) · scale. It is computed in the type of the scale, but of fp8 in
// float32, as the packages that define these checkpoints do (compressed-tensors, gptqmodel; transformers), and
// then rounded to bf16. So what a scale of float16 multiplies is rounded twice.
//
// # Kinds
//
// A kind is a file that registers itself by its quant_method. Everything that a module lacks, or
// has in another shape or type, is in one error.
package quantized
