package costmodel_test

import (
	"fmt"
	"os"

	"glimpse/engine/costmodel"
	"glimpse/eviction"
	_ "glimpse/kernels/backends"
	"glimpse/model"
)

// The costs of the built-in model, of a prompt of 512 tokens and an answer of 64.
func Example() {
	m, err := model.OpenShapes("", "cpu")
	if err != nil {
		fmt.Println(err)
		return
	}
	var policies []*eviction.Configured
	for _, name := range []string{"full", "snapkv", "laq", "quest"} {
		p, err := eviction.New(name, 0, nil, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		policies = append(policies, p)
	}
	chip, err := costmodel.ParseChip("flops=100e9,bandwidth=20e9")
	if err != nil {
		fmt.Println(err)
		return
	}
	models := []costmodel.Model{costmodel.New(m, chip, costmodel.Runtime)}
	if err := costmodel.WriteTable(os.Stdout, models, policies, []costmodel.Run{{Tokens: 512, Budget: 64, MaxNew: 64}}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// | context | budget | policy |   TFLOP |     GB | TTFT ms | overhead ms | step ms | tok/s | held MB | peak MB |
	// |--------:|-------:|-------:|--------:|-------:|--------:|------------:|--------:|------:|--------:|--------:|
	// |     512 |     64 |   full | 0.00261 | 0.0091 |    37.5 |        0.00 |   0.396 |  2523 |     2.1 |    2.36 |
	// |     512 |     64 | snapkv | 0.00264 | 0.0107 |      38 |        0.51 |   0.294 |  3396 |   0.262 |    0.52 |
	// |     512 |     64 |    laq | 0.00285 |   0.18 |    47.8 |       10.35 |   0.294 |  3396 |   0.262 |    2.49 |
	// |     512 |     64 |  quest | 0.00261 | 0.0091 |    37.5 |        0.00 |   0.287 |  3482 |     2.1 |    2.36 |
	//
	// Chip flops=100e9,bandwidth=20e9: 0.1 TFLOP/s and 20 GB/s, of which 70% and 90% are reached. Runtime: what this program computes and moves, tera and giga of 10¹² and 10⁹.
}
