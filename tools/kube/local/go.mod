module quorate.test/kube/local

go 1.26.0
