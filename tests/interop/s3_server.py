"""Runs a command beside an S3 server on loopback, with the environment set and a bucket `loaderx` made:

    python s3_server.py COMMAND [ARGUMENT...]

It needs moto (pip install 'moto[s3,server]').
"""

import os
import subprocess
import sys

import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
environment = {
    "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret",
    "AWS_REGION": "us-east-1",
    "LOADERX_S3": "s3://loaderx",
}
os.environ.update(environment)
boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"], region_name="us-east-1").create_bucket(Bucket="loaderx")
status = subprocess.run(sys.argv[1:]).returncode
server.stop()
sys.exit(status)
