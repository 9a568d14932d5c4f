package judging

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	ratingPattern = regexp.MustCompile(`\[\[(\d+\.?\d*)\]\]`)
	ratingBackup  = regexp.MustCompile(`\[(\d+\.?\d*)\]`)
)

// maxRating is the best one.
const maxRating = 10

// Rating finds the rating of a judgement as FastChat does (fastchat/llm_judge/common.py): the
// first [[n]], or else the first [n]. What a reasoning model thinks before it judges is
// passed over. ok is false where there is none from 0 to 10.
func Rating(text string) (rating float64, ok bool) {
	if _, after, found := strings.Cut(text, "</think>"); found {
		text = after
	}
	match := ratingPattern.FindStringSubmatch(text)
	if match == nil {
		match = ratingBackup.FindStringSubmatch(text)
	}
	if match == nil {
		return 0, false
	}
	rating, err := strconv.ParseFloat(match[1], 64)
	if err != nil || rating > maxRating {
		return 0, false
	}
	return rating, true
}
