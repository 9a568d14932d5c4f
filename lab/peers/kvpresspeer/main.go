// Command kvpresspeer compares what policies keep of a context with what kvpress's presses keep (presses.py beside it writes
// it), and prints the share of entries that are the same.
//
//	go -C lab run ./peers/kvpresspeer MODEL CONTEXT.json PEER.json [GATES]
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strings"

	"glimpse/checkpoints"
	"glimpse/eviction"
	_ "glimpse/gates"
	_ "glimpse/kernels/backends"
	"glimpse/model"
)

// presses are the policies that the presses' names stand for.
var presses = map[string][]string{
	"kvzip/global":           {"kvzip.head-budgets=global"},
	"kvzip/layer":            {"kvzip.head-budgets=layer"},
	"kvzip+/global":          {"kvzip+.head-budgets=global"},
	"kvzip+/layer":           {"kvzip+.head-budgets=layer"},
	"keydiff":                nil,
	"expectedattention":      nil,
	"expectedattention/mean": {"expectedattention.covariance=0", "expectedattention.vnorm=0"},
	"kvzap":                  {"kvzap.window=0", "kvzap.sink=0"},
}

func main() {
	log.SetFlags(0)
	var tokens []int32
	var peer map[string][][][]int32
	m, err := model.Open(os.Args[1], model.Options{Device: "cpu", CacheDType: "float32", Exact: true})
	for path, into := range map[string]any{os.Args[2]: &tokens, os.Args[3]: &peer} {
		raw, readErr := os.ReadFile(path)
		if readErr == nil {
			readErr = json.Unmarshal(raw, into)
		}
		if err == nil {
			err = readErr
		}
	}
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(peer)) { // what kvpress takes the model for
		set, adapter := presses[name], model.Adapter(nil)
		policy := name
		if len(set) > 0 {
			policy, _, _ = strings.Cut(set[0], ".")
		}
		if m.Config.HasWindows() { // which kvpress evicts, too
			set = append(slices.Clone(set), policy+".windows=evict")
		}
		if name == "kvzap" {
			stored, err := checkpoints.ReadAdapter(os.Args[4])
			if err != nil {
				log.Fatal(err)
			}
			if adapter, err = m.LoadAdapter(context.Background(), stored); err != nil {
				log.Fatal(err)
			}
		}
		overrides, err := eviction.ParseOverrides(set)
		if err != nil {
			log.Fatal(err)
		}
		total := 0
		for _, heads := range peer[name] {
			for _, kept := range heads {
				total += len(kept)
			}
		}
		c, err := eviction.New(policy, 0, overrides, adapter)
		if err != nil {
			log.Fatal(err)
		}
		s, err := eviction.NewRuntime(m).Prefill(context.Background(), c, eviction.Prompt{Tokens: tokens, Budget: total / (m.Config.Layers * m.Config.KVHeads)})
		if err != nil {
			log.Fatal(err)
		}
		same, ours := 0, 0
		for l, heads := range s.Kept() {
			for h, kept := range heads {
				ours += len(kept)
				for _, j := range kept {
					if slices.Contains(peer[name][l][h], j) {
						same++
					}
				}
			}
		}
		fmt.Printf("%-22s kvpress keeps %d entries, we %d, the same %d (%.3f%%)\n", name, total, ours, same, 100*float64(same)/float64(total))
	}
}
