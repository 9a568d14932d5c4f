// Examples prints synthetic examples as JSONL, one object with id, task,
// prompt_ids and answer_ids per line, so that programs in other languages can be
// judged on the same prompts:
//
//	go -C lab run ./golden/examples -per-task 10 -split test -seed 77
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"glimpse/datasets"
)

type line struct {
	ID        string  `json:"id"`
	Task      string  `json:"task"`
	PromptIDs []int32 `json:"prompt_ids"`
	AnswerIDs []int32 `json:"answer_ids"`
}

func main() {
	tasks := flag.String("tasks", "all", "comma-separated task names, or all")
	split := flag.String("split", string(datasets.Test), "train, validation or test")
	tokens := flag.Int("tokens", 512, "prompt length in tokens")
	perTask := flag.Int("per-task", 10, "examples of each task")
	seed := flag.Uint64("seed", 77, "seed of the stream")
	flag.Parse()
	if err := run(*tasks, *split, *tokens, *perTask, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "examples:", err)
		os.Exit(1)
	}
}

func run(taskList, splitName string, tokens, perTask int, seed uint64) error {
	tasks, err := datasets.ParseTasks(taskList)
	if err != nil {
		return err
	}
	split, err := datasets.ParseSplit(splitName)
	if err != nil {
		return err
	}
	stream, err := datasets.NewStream(tasks, split, tokens, seed)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for i := range perTask * len(tasks) {
		e, err := stream.At(i)
		if err != nil {
			return err
		}
		if err := encoder.Encode(line{e.ID, e.Task, e.Prompt, e.Answer}); err != nil {
			return err
		}
	}
	return out.Flush()
}
