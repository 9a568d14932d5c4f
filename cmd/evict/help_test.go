package main

import (
	"testing"

	"glimpse/internal/clitest"
)

func TestHelp(t *testing.T) { clitest.CheckHelp(t, newRoot()) }
