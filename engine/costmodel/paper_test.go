package costmodel_test

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"glimpse/engine/costmodel"
	"glimpse/eviction"
	_ "glimpse/kernels/backends"
	_ "glimpse/lora"
	"glimpse/model"
)

// llama8B and llama1B are the shapes of Llama-3.1-8B and Llama-3.2-1B (Dubey et al. 2024,
// arXiv:2407.21783, table 3, and the model card of Llama 3.2), in half precision.
const (
	llama8B = `{"architectures":["LlamaForCausalLM"],"torch_dtype":"bfloat16","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,
		"num_key_value_heads":8,"intermediate_size":14336,"vocab_size":128256,"max_position_embeddings":131072,"rms_norm_eps":1e-5,"rope_theta":500000}`
	llama1B = `{"architectures":["LlamaForCausalLM"],"torch_dtype":"bfloat16","hidden_size":2048,"num_hidden_layers":16,"num_attention_heads":32,
		"num_key_value_heads":8,"head_dim":64,"intermediate_size":8192,"vocab_size":128256,"max_position_embeddings":131072,"rms_norm_eps":1e-5,"rope_theta":500000,"tie_word_embeddings":true}`
)

// shapes is a model without weights, whose cache is in half precision.
func shapes(t *testing.T, config string) *model.Model {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := model.OpenShapes(dir, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.SetCacheDType("bf16"); err != nil {
		t.Fatal(err)
	}
	return m
}

// lookahead is an adapter of m as LookaheadKV (arXiv:2603.10899, §4.1) has it, without
// numbers.
func lookahead(t *testing.T, m *model.Model) model.RowsAdapter {
	t.Helper()
	kind, err := model.RowsKinds.Lookup("lookaheadkv")
	if err != nil {
		t.Fatal(err)
	}
	counted, _ := m.Counted()
	a, err := kind.New(counted, model.AdapterConfig{Rows: 32, Rank: 8, Alpha: 32, Modules: model.Modules, InitToken: -1})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// table15 is LookaheadKV (arXiv:2603.10899), table 15, its theoretical columns: context, method, TFLOPs,
// traffic in GB, TTFT in ms, overhead in ms. Table 3 is its rows of 8192 and 32768.
const table15 = `
4096  full        60   13  113  -
4096  lookaheadkv 60   13  114  0.92
4096  snapkv      60   13  113  0.01
4096  speckv      70   77  165  52.10
4096  laq         61   444 347  233.81
8192  full        136  13  257  -
8192  lookaheadkv 137  13  258  1.03
8192  snapkv      136  13  257  0.01
8192  speckv      159  81  337  79.53
8192  laq         137  445 492  234.59
16384 full        336  13  635  -
16384 lookaheadkv 337  13  636  1.27
16384 snapkv      336  13  635  0.01
16384 speckv      398  89  792  157.05
16384 laq         337  447 871  236.15
32768 full        928  13  1754 -
32768 lookaheadkv 929  13  1755 1.74
32768 snapkv      928  13  1754 0.01
32768 speckv      1115 106 2156 402.80
32768 laq         930  451 1993 239.26`

// table3 is table 3 of the same paper in the same columns.
const table3 = `
8192  full        136  13  257  -
8192  lookaheadkv 137  13  258  1.03
8192  snapkv      136  13  257  0.01
8192  speckv      159  81  337  79.53
8192  laq         137  445 492  234.59
32768 full        928  13  1754 -
32768 lookaheadkv 929  13  1755 1.74
32768 snapkv      928  13  1754 0.01
32768 speckv      1115 106 2156 402.80
32768 laq         930  451 1993 239.26`

// TestPaperTables: the theoretical columns are the model's, 75 of 76 numbers to the last
// digit that is printed, and the other one, speckv's 52.10 ms, to one unit of it.
func TestPaperTables(t *testing.T) {
	target, draft := shapes(t, llama8B), shapes(t, llama1B)
	costs := costmodel.New(target, costmodel.H100PCIe, costmodel.Paper)
	policies := make(map[string]*eviction.Configured)
	for name, r := range map[string]eviction.Resources{
		"full": {}, "snapkv": {}, "laq": {}, "speckv": {Draft: draft}, "lookaheadkv": {Adapter: lookahead(t, target)},
	} {
		p, err := eviction.NewWith(name, 0, nil, r)
		if err != nil {
			t.Fatal(err)
		}
		policies[name] = p
	}
	for _, table := range []struct {
		name, rows     string
		numbers, equal int
	}{{"table 3", table3, 38, 38}, {"table 15", table15, 76, 75}} {
		worst, where, numbers, equal := 0.0, "", 0, 0
		for line := range strings.Lines(strings.TrimSpace(table.rows)) {
			f := strings.Fields(line)
			tokens, _ := strconv.Atoi(f[0])
			e := costs.Estimate(policies[f[1]], costmodel.Run{Tokens: tokens, Budget: 128})
			for i, got := range []float64{e.TTFT.FLOPs / (1 << 40), e.TTFT.Bytes / (1 << 30), 1e3 * e.TTFT.Seconds, 1e3 * e.Overhead} {
				column := []string{"TFLOPs", "GB", "TTFT", "overhead"}[i]
				text := f[2+i]
				if text == "-" {
					if got != 0 {
						t.Errorf("%s, %s: an overhead of %v ms over itself", table.name, line, got)
					}
					continue
				}
				numbers++
				_, decimals, _ := strings.Cut(text, ".")
				want, _ := strconv.ParseFloat(text, 64)
				unit := math.Pow(10, -float64(len(decimals)))
				printed := math.Round(got / unit)
				switch math.Abs(printed - math.Round(want/unit)) {
				case 0:
					equal++
				case 1:
					t.Logf("%s, %s at %s: %s of %.4f, the paper has %s", table.name, f[1], f[0], column, got, text)
				default:
					t.Errorf("%s, %s at %s: %s of %.4f, the paper has %s", table.name, f[1], f[0], column, got, text)
				}
				// 0.01 has one digit: half a unit of it is half of the number.
				if d := math.Abs(got/want - 1); want > 0.01 && d > worst {
					worst, where = d, strings.Join(f[:2], " ")+" "+column
				}
			}
		}
		if numbers != table.numbers {
			t.Errorf("%s: compared %d numbers, want %d", table.name, numbers, table.numbers)
		}
		if equal < table.equal {
			t.Errorf("%s: %d of %d numbers are equal as printed, want %d", table.name, equal, numbers, table.equal)
		}
		if !(worst < 0.03) {
			t.Errorf("%s: %.2f%% off at %s, want less than 3%%", table.name, 100*worst, where)
		}
		t.Logf("%s: %d of %d numbers equal as printed; at most %.2f%% before rounding (%s)", table.name, equal, numbers, 100*worst, where)
	}
}
