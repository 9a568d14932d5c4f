package main

import (
	"fmt"
	"io"
	"strconv"
)

// published are the times to first token of table 3 of LookaheadKV, arXiv:2603.10899, in milliseconds on
// an H100 by PyTorch: of the forward pass alone, and what policies add.
var published = map[int]map[string]float64{
	8192:  {"full": 291, "lookaheadkv": 11, "snapkv": 20, "laq": 509},
	32768: {"full": 1760, "lookaheadkv": 38, "snapkv": 78, "laq": 554},
}

func (r *report) writePrefill(w io.Writer) {
	section(w, "\n### Prefill\n\nPrompt to the logits of its last token.\n\n", r.of("prefill").Prefill,
		[]string{"tokens", "rows at once", "ms", "TFLOP/s", "of the ceiling", "peak memory", "PyTorch, ms", "PyTorch ÷ ours"}, func(row prefillRow) []string {
			if row.Missing != "" {
				return []string{strconv.Itoa(row.Tokens), number("%.0f", float64(row.Chunk)), row.Missing}
			}
			chunk, torch := "default", r.torchPrefill(row.Tokens)
			if row.Chunk > 0 {
				chunk = strconv.Itoa(row.Chunk)
			}
			return []string{strconv.Itoa(row.Tokens), chunk, number("%.1f", row.Millis), number("%.1f", row.TFLOPs), number("%.1f%%", 100*share(row.TFLOPs, r.product())),
				gigabytes(row.Peak), number("%.1f", torch), number("%.2f", share(torch, row.Millis))}
		})
}

func (r *report) writeTTFT(w io.Writer) {
	rows := r.of("ttft").TTFT
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n### Time to first token\n\nBudget %d, policies in turn within each round; beside it table 3 of the LookaheadKV paper (H100, PyTorch).\n\n", rows[0].Budget)
	t := newTable(w, "tokens", "policy", "ms", "over plain prefill", "paper, ms", "paper, over")
	for _, row := range rows {
		if row.Missing != "" {
			t.row(strconv.Itoa(row.Tokens), row.Missing)
			continue
		}
		paper, over := "–", "–"
		if p := published[row.Tokens]; p != nil {
			if paper = fmt.Sprintf("%.0f", p["full"]); row.Policy != "full" {
				paper, over = fmt.Sprintf("%.0f", p["full"]+p[row.Policy]), fmt.Sprintf("%.1f%%", 100*p[row.Policy]/p["full"])
			}
		}
		own := fmt.Sprintf("%.2f%%", 100*row.Over)
		if row.Policy == "full" {
			own = ""
		}
		t.row(strconv.Itoa(row.Tokens), row.Policy, number("%.1f", row.Millis), own, paper, over)
	}
}

func (r *report) writeDecode(w io.Writer) {
	fullRate := make(map[int]float64)
	section(w, "\n### Decoding\n\nOne sequence, greedy (compare figure 7 of the RocketKV paper: up to 3.3 times as fast as the full cache on an H100). A token reads the weights and the kept cache at least once.\n\n", r.of("decode").Decode,
		[]string{"context", "cache", "tokens/s", "× full", "GB a token", "of the copy bandwidth", "peak memory"}, func(row decodeRow) []string {
			if row.Budget == 0 {
				fullRate[row.Context] = row.Rate
			}
			if row.Missing != "" {
				return []string{strconv.Itoa(row.Context), budgetName(row.Budget), row.Missing}
			}
			return []string{strconv.Itoa(row.Context), budgetName(row.Budget), number("%.1f", row.Rate), number("%.2f", share(row.Rate, fullRate[row.Context])),
				number("%.2f", float64(row.Bytes)/1e9), number("%.1f%%", 100*r.decodeShare(row)), gigabytes(row.Peak)}
		})
}

func (r *report) writeTrain(w io.Writer) {
	section(w, "\n### Training step\n\nOne sample of a LookaheadKV adapter (32 rows, LoRA on all layers), without the optimiser's part of it. The floor is the step's operations over the prefill's. PyTorch runs the step on a shared prefill, and as two passes.\n\n", r.of("train").Train,
		[]string{"prompt", "response", "prefill, ms", "step, ms", "step ÷ prefill", "floor", "peak memory", "PyTorch shared, ms", "PyTorch passes, ms"}, func(row trainRow) []string {
			cells := map[string]string{"shared": "–", "passes": "–"}
			for _, p := range r.peer.Train {
				if p.Prompt != row.Prompt {
					continue
				}
				if cells[p.Way] = number("%.1f", p.Millis); p.Error != "" {
					cells[p.Way] = "out of memory"
				}
			}
			return []string{strconv.Itoa(row.Prompt), strconv.Itoa(row.Response), number("%.1f", row.Prefill), number("%.1f", row.Step), number("%.3f", share(row.Step, row.Prefill)),
				number("%.3f", row.Floor), gigabytes(row.Peak), cells["shared"], cells["passes"]}
		})
	if l := r.of("train24").Limited; l != nil {
		outcome := fmt.Sprintf("runs, with %s at most", gigabytes(l.Peak))
		if l.Error != "" {
			outcome = "does not fit: " + l.Error
		}
		fmt.Fprintf(w, "\nWith %s of memory, driver and libraries included, a step of %d prompt tokens %s.\n", gigabytes(l.Limit), l.Prompt, outcome)
	}
}

func (r *report) writeBatch(w io.Writer) {
	rows := r.of("batch").Batch
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n### Batches in %s\n\nThe largest batch of a power of two that decodes to the end, and its throughput, from steps at the beginning, the middle and the end (compare table 5 of the D2O paper). The evicted caches stay at the prompt's length; the policy's own work is not in it.\n\n", gigabytes(rows[0].Limit))
	t := newTable(w, "prompt + generated", "cache", "batch", "tokens/s", "× full")
	base := 0.0
	for _, row := range rows {
		lengths := fmt.Sprintf("%d + %d", row.Prompt, row.Generated)
		if row.Budget == 0 {
			base = row.Rate
		}
		batch := strconv.Itoa(row.Batch)
		if row.Capped {
			batch = "≥ " + batch
		}
		if row.Missing != "" {
			batch = row.Missing
		}
		t.row(lengths, budgetName(row.Budget), batch, number("%.1f", row.Rate), number("%.2f", share(row.Rate, base)))
	}
}
