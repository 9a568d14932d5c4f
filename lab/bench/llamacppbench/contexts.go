package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// variant is a program and its cache. llama.cpp may attend plainly, and this program evicts.
type variant struct {
	name, program, cache string
	args                 []string // after DEPTH
}

// runContexts prints, for each length of -depths, how fast the prompt is read and answers are decoded behind it, the most bytes of the cache, and of the
// process. One of both programs at a time, in turns.
func runContexts() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	variants := []variant{}
	for _, v := range strings.Split(*contexts, ",") { // CACHE[:plain] of llama.cpp, CACHE:POLICY:BUDGET of this program
		cache, more, _ := strings.Cut(v, ":")
		switch {
		case more == "":
			variants = append(variants, variant{"llama.cpp " + cache, *step, cache, nil})
		case more == "plain":
			variants = append(variants, variant{"llama.cpp " + v, *step, cache, []string{more}})
		default:
			variants = append(variants, variant{v, self, cache, []string{more}})
		}
	}
	fmt.Println("| file | tokens | program | prompt, tokens/s | decoding after it, tokens/s | cache at most, MB | process at most, MB |")
	fmt.Println("|:---|---:|:---|---:|---:|---:|---:|")
	for _, path := range flag.Args() {
		if err := eachDepth(func(depth int) error {
			prompts, decoding, bytes, rss := make([][]float64, len(variants)), make([][]float64, len(variants)), make([]int64, len(variants)), make([]int64, len(variants))
			for range *rounds {
				for i, v := range variants {
					args := slices.Concat([]string{path, v.cache, strconv.Itoa(*threads), strconv.Itoa(depth)}, v.args)
					if v.program == self {
						args = append([]string{"step"}, args...)
					}
					s, err := start(v.name, v.program, args...)
					if err != nil {
						return err
					}
					_, err = s.ask(2)
					if err != nil {
						return err
					}
					took, err := s.ask(*decoded)
					if err != nil {
						return err
					}
					if rss[i], err = s.end(); err != nil {
						return err
					}
					bytes[i] = s.bytes
					prompts[i], decoding[i] = append(prompts[i], float64(depth)/s.prompt), append(decoding[i], float64(*decoded)/took)
				}
			}
			for i, v := range variants {
				fmt.Printf("| %s | %d | %s | %.1f | %.1f | %.1f | %.0f |\n", filepath.Base(path), depth, v.name, median(prompts[i]), median(decoding[i]), float64(bytes[i])/1e6, float64(rss[i])/1e6)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
